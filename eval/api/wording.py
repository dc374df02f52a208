"""Messages in the words of Python: an option is a keyword there, not something with dashes."""

from __future__ import annotations

import re

_OPTION = re.compile(r"(?<![\w-])--(?:[a-z_]+\.)*([a-z_][a-z_0-9]*)( true\b| false\b| \d+(?![\w.]*\w))?")
_SENTENCE = re.compile(r"(?<=[.:;])\s|\n")
_OF_THE_SHELL = re.compile(r"\bcorag [a-z]+|\bpip |\bbash ")


def in_python(message: str) -> str:
    """Return a message with options as keywords; a command for the shell stays as it is.

    >>> in_python("Choose another --out, or --overwrite true. Run `corag index --part 1/2`.")
    'Choose another out=..., or overwrite=True. Run `corag index --part 1/2`.'
    """
    parts = re.split(f"({_SENTENCE.pattern})", message)
    return "".join(part if _OF_THE_SHELL.search(part) else _OPTION.sub(_keyword, part) for part in parts)


def _keyword(option: re.Match[str]) -> str:
    name, value = option[1], (option[2] or "").strip()
    if name == "help":
        return "help()"
    return f"{name}={value.capitalize()}" if value else f"{name}=..." if name == "out" else name
