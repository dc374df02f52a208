"""What is recorded as text that is equal whenever the product does the same, and two records compared."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
# Of times, places and versions, which differ though nothing has changed.
VARYING = {"seconds", "started", "opened", "begun", "command", "machine", "versions"}
WORDING = {
    r"\b[0-9a-f]{40}(\+changes)?": "COMMIT",
    r"\b\d+\.\d s\b": "TIME",
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\+00:00)?": "DATE",
}


def plain(text: str) -> str:
    """Return a text without what varies from run to run and from machine to machine."""
    places = {os.getcwd(): "TMP", str(REPOSITORY): "REPOSITORY", str(Path.home()): "HOME"}
    for place, name in places.items():
        text = text.replace(place, name)
    for pattern, name in WORDING.items():
        text = re.sub(pattern, name, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def steady(value: Any) -> Any:
    """Return JSON values without those that vary; prompts become the names that they have in prompts.txt."""
    if isinstance(value, dict):
        kept = {str(name): steady(each) for name, each in value.items() if name not in VARYING}
        return kept | ({"prompt": name_of(kept["prompt"])} if isinstance(kept.get("prompt"), str) else {})
    return [steady(each) for each in value] if isinstance(value, list | tuple) else value


def name_of(prompt: str) -> str:
    """Return what a prompt is called: its digest."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:8]


def laid_out(value: Any, indent: str = "") -> str:
    """Return JSON with sorted keys, in which what is short, or a list of numbers, stands on one line."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    numbers = isinstance(value, list) and all(isinstance(each, int | float) for each in value)
    if not isinstance(value, dict | list) or len(line) + len(indent) < 100 or numbers:
        return line
    deeper = indent + " "
    if isinstance(value, list):
        first, last, lines = "[", "]", [laid_out(each, deeper) for each in value]
    else:
        first, last = "{", "}"
        lines = [f"{json.dumps(name)}: {laid_out(value[name], deeper)}" for name in sorted(value)]
    return f"{first}\n{deeper}" + f",\n{deeper}".join(lines) + f"\n{indent}{last}"


def write(file: Path, content: Any) -> None:
    """Write a text as it is, and anything else as JSON with sorted keys."""
    text = content if isinstance(content, str) else laid_out(steady(content))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(plain(text), encoding="utf-8")


def prompt_lines(requests: list[tuple[str, str]]) -> Iterator[str]:
    """Yield prompts, each once under its name, with what was asked for with them.

    They are sorted, so that their order is not that of scheduling, and a beginning that stood there already
    is left out: prompts with demonstrations share thousands of words.
    """
    wanted: dict[str, list[str]] = {}
    for text, how in sorted(requests):
        wanted.setdefault(text, []).append(how)
    before: list[str] = []
    for text, ways in wanted.items():
        lines = text.split("\n")
        pairs = enumerate(zip(before, lines, strict=False))
        same = next((at for at, pair in pairs if len(set(pair)) > 1), 0)
        yield f"==== {name_of(text)} ({len(text):,} characters)"
        yield from (f"---- {ways.count(how)} x {how}" for how in sorted(set(ways)))
        yield from [f"[{same} lines as in the prompt above]", *lines[same:]] if same > 3 else lines
        before = lines


def differences(one: Path, other: Path, most: int, parts: Sequence[str] = ("",)) -> Iterator[str]:
    """Yield what differs between two records, file by file: a unified diff of ``most`` lines each.

    ``parts``: the folders in them that are compared.
    """
    files = (file for root in (one, other) for part in parts for file in (root / part).rglob("*"))
    names = {file.relative_to(one if file.is_relative_to(one) else other) for file in files if file.is_file()}
    for name in sorted(names):
        before, after = (
            file.read_text(encoding="utf-8").splitlines() if file.exists() else []
            for file in (one / name, other / name)
        )
        lines = list(difflib.unified_diff(before, after, f"before/{name}", f"after/{name}", lineterm="", n=1))
        yield from lines[:most]
        if len(lines) > most:
            yield f"... and {len(lines) - most:,} lines more of {name}"
