"""Messages of errors, checked against one file that a person can read through: tests/messages.json.

``with raises_message(ConfigError):`` expects an error as ``pytest.raises`` does, and its message as it stands
in the file under the test's name. After a message was changed on purpose, or a test added:

    CORAG_MESSAGES=write bash scripts/test.sh tests/cli/test_config.py

writes what was seen; the difference of the file is then what users will read.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".json")
WRITE = os.environ.get("CORAG_MESSAGES") == "write"
Messages = dict[str, dict[str, list[str]]]
"""By file and test, in the order in which a test meets them."""

# What differs from machine to machine and from run to run.
_VARYING = {
    rf"{re.escape(tempfile.gettempdir())}/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[^/'\"\s:,)]+": "TMP",
    re.escape(str(ROOT)): "ROOT",
    r"(?<=127\.0\.0\.1:)\d+": "PORT",
    r"(?<=localhost:)\d+": "PORT",
    r"(?<=\(process )\d+": "N",
    r"(?<= on )\S+(?=\) is at work in)": "HOST",
    r"(?<='127\.0\.0\.1', )\d+": "PORT",  # as asyncio prints an address
    r"\b0x[0-9a-f]{6,}\b": "0xADDRESS",
    r"\b(?=[0-9a-f]*\d)[0-9a-f]{16}\b": "DIGEST",
}
_last: tuple[str, int] = ("", 0)


@contextmanager
def raises_message(kind: type[BaseException]) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Expect an error of this class with the message that is on file for this place of the test."""
    with pytest.raises(kind) as error:
        yield error
    file, test, number = _place()
    text = f"{type(error.value).__name__}: {normalised(str(error.value))}"
    if WRITE:
        _write(file, test, number, text)
        return
    known = messages().get(file, {}).get(test, [])
    assert number < len(known), f"no message is on file for this test (CORAG_MESSAGES=write): {text}"
    assert text == known[number]


def messages() -> Messages:
    """Return all messages on file."""
    known: Messages = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return known


def normalised(text: str) -> str:
    """Return a message without what differs from run to run."""
    for pattern, name in _VARYING.items():
        text = re.sub(pattern, name, text)
    return text


def _place() -> tuple[str, str, int]:
    """Return the file and name of the test that runs, and how many messages it has met before."""
    global _last
    current = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)").removesuffix(" (setup)")
    _last = (current, _last[1] + 1 if _last[0] == current else 0)
    file, _, test = current.partition("::")
    return file, test, _last[1]


def _write(file: str, test: str, number: int, text: str) -> None:
    with (Path(tempfile.gettempdir()) / "corag-messages.lock").open(
        "w"
    ) as lock:  # tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = messages()
        tests = known.setdefault(file, {})
        tests[test] = [*tests.get(test, [])[:number], text]
        known = {name: dict(sorted(known[name].items())) for name in sorted(known)}
        FILE.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
