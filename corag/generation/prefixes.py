"""How a model that cannot be given the beginning of its reply is asked to begin so."""

from __future__ import annotations

_BEGIN = "\n\nBegin your reply with: {prefix}"


def request_prefix(messages: list[dict[str, str]], prefix: str) -> list[dict[str, str]]:
    """Return messages whose last one says how the reply is to begin, if it is to."""
    if not prefix:
        return messages
    *others, last = messages
    return [*others, {**last, "content": last["content"] + _BEGIN.format(prefix=prefix)}]


def repeated_length(text: str, prefix: str) -> int:
    """Return the length of what a reply repeats of the words that it was asked to begin with.

    >>> repeated_length(" So: Paris", "So:"), repeated_length("Sole", "So")
    (4, 0)
    """
    lead = len(text) - len(text.lstrip())
    words = prefix.strip()
    end = lead + len(words)
    whole_word = not (words[-1:].isalnum() and text[end : end + 1].isalnum())
    return end if words and whole_word and text[lead:].startswith(words) else 0
