"""Every message of an error that tests have on file, under headings of its own, so that search finds it."""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path

FILE = Path(__file__).parents[2] / "tests/messages.json"
_HEADING = 90  # characters at most


def messages_of(prefixes: str) -> str:
    """Return a heading for each kind of message, with all its wordings below it, as Markdown.

    ``prefixes``: what names of test files begin with, separated by spaces.
    """
    wanted = tuple(prefixes.split())
    kinds: dict[str, dict[str, None]] = {}
    for file, tests in json.loads(FILE.read_text()).items():
        if file.startswith(wanted):
            for message in (each for test in tests.values() for each in test):
                kinds.setdefault(kind_of(message), {})[message] = None
    parts = sorted((_part(list(each)) for each in kinds.values()), key=str.lower)
    return "\n".join(parts)


def kind_of(message: str) -> str:
    """Return what messages that differ in names and numbers alone have in common.

    >>> kind_of("ConfigError: option 'a.b': expected 1 or more, but got '0'.")
    "ConfigError: option '': expected 0 or more, but got ''."
    """
    return re.sub(r"\d+", "0", re.sub(r"'[^']*'", "''", message))


def _part(messages: list[str]) -> str:
    """Return the heading of a kind of message, and its wordings."""
    kind, _, text = messages[0].partition(": ")
    line = " ".join(text.split())
    title = line if len(line) <= _HEADING else f"{line[:_HEADING].rsplit(' ', 1)[0]} …"
    shown = re.sub(r"([\\`*_{}\[\]()#+\-.!])", r"\\\1", html.escape(title, quote=False))
    anchor = hashlib.sha256(messages[0].encode()).hexdigest()[:10]
    wordings = [" ".join(each.partition(": ")[2].split()) for each in messages]
    further = [each for each in wordings if each != title]  # a short message is its heading
    body = "".join(f"<p>{html.escape(each, quote=False)}</p>\n" for each in further)
    return f"### {shown} {{ #m-{anchor} }}\n\n<div>\n<p><code>{kind}</code></p>\n{body}</div>\n"
