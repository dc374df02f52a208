"""Every message of an error that tests have on file, under headings of its own, so that search finds it."""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path

FILE = Path(__file__).parents[2] / "tests/messages.json"
_HEADING = 90  # characters at most
_WORDS = 8  # messages that begin with these are of one kind
_FAMILIES = ("was made with other settings", "were made with different settings")
"""What makes a message one of a kind, whatever it begins with."""


def messages_of(prefixes: str) -> str:
    """Return a heading for each kind of message, with all its wordings below it, as Markdown.

    ``prefixes``: what names of test files begin with, separated by spaces.
    """
    file_prefixes = tuple(prefixes.split())
    kinds: dict[str, dict[str, None]] = {}
    for file, tests in json.loads(FILE.read_text()).items():
        if file.startswith(file_prefixes):
            for message in (each for test in tests.values() for each in test):
                kinds.setdefault(kind_of(message), {})[message] = None
    parts = sorted((_part(kind, list(each)) for kind, each in kinds.items()), key=str.lower)
    return "\n".join(parts)


def kind_of(message: str) -> str:
    """Return what messages have in common that are to stand under one heading.

    They differ in names and numbers, or begin with the same words, or are of a family.

    >>> kind_of("ConfigError: option 'a.b': expected 1 or more, but got '0'.")
    "option '': expected 0 or more, but got"
    >>> kind_of("ConfigError: the run 'a' was made with other settings: k: 1 -> 2.")
    'was made with other settings'
    """
    for family in _FAMILIES:
        if family in message:
            return family
    alike = re.sub(r"\d+", "0", re.sub(r"'[^']*'", "''", message)).partition(": ")[2]
    return " ".join(alike.split()[:_WORDS])


def _part(kind: str, messages: list[str]) -> str:
    """Return the heading of a kind of message, and its wordings."""
    classes = ", ".join(dict.fromkeys(each.partition(": ")[0] for each in messages))
    line = f"… {kind}" if kind in _FAMILIES else " ".join(messages[0].partition(": ")[2].split())
    title = line if len(line) <= _HEADING else f"{line[:_HEADING].rsplit(' ', 1)[0]} …"
    escaped_title = re.sub(r"([\\`*_{}\[\]()#+\-.!])", r"\\\1", html.escape(title, quote=False))
    anchor = hashlib.sha256(messages[0].encode()).hexdigest()[:10]
    wordings = [" ".join(each.partition(": ")[2].split()) for each in messages]
    further = [each for each in wordings if each != title]  # a short message is its heading
    body = "".join(f"<p>{html.escape(each, quote=False)}</p>\n" for each in further)
    return f"### {escaped_title} {{ #m-{anchor} }}\n\n<div>\n<p><code>{classes}</code></p>\n{body}</div>\n"
