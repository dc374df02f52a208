"""The token ids of a text that goes on where another one ends.

They are not those of the text by itself. SentencePiece vocabularies (Llama 2, Mistral, Phi-3) put a blank
before every text that they read: by itself " Paris" has two. So a text is read behind what it continues, and
what stands there already is taken away again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# Read in place of the text before, where its last token would become one with the first of what follows.
ANCHORS = ("\n", "a", ":", "?")
# How much of the text before is read again, in characters: enough for a few words. A prompt is much longer.
_CONTEXT_LENGTH = 120


def continuation_ids(encode: Callable[[str], Sequence[int]], before: str, text: str) -> list[int]:
    """Return the token ids of ``text`` behind ``before``, such that what stands there stays as it is.

    ``encode``: returns the ids of a text without special tokens around it.
    """
    for start in (before, *ANCHORS):
        if (ids := ids_behind(encode(start), encode(start + text))) is not None:
            return ids
    return list(encode(text))


def ids_behind(start: Sequence[int], whole: Sequence[int]) -> list[int] | None:
    """Return what is behind the beginning of token ids, None if they begin otherwise, or with nothing.

    >>> ids_behind([5, 6], [5, 6, 7, 8]), ids_behind([5, 6], [5, 9, 7])
    ([7, 8], None)
    """
    if not start or list(whole[: len(start)]) != list(start):
        return None
    return list(whole[len(start) :])


def last_words(text: str, names: re.Pattern[str]) -> str:
    """Return the end of a text, from the beginning of a word or a special token's name on.

    ``names``: finds the special tokens. Reading the end is enough to know how the text goes on.
    """
    if len(text) <= 2 * _CONTEXT_LENGTH:
        return text
    end = text[-2 * _CONTEXT_LENGTH :]
    last = [match.start() for match in names.finditer(end)]
    blank = end.find(" ", _CONTEXT_LENGTH)
    return end[last[-1] if last else max(blank, 0) :]
