"""Excerpts: of a passage only the sentences that matter for what is asked, so that prompts cost less.

Extractive compression by words alone, as a lexical stand-in for learned ones (RECOMP, Xu et al., ICLR 2024,
arXiv 2310.04408). No model is asked and no token spent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from corag.core.language.sentences import sentence_spans
from corag.core.language.words import is_unspaced, line_joint, word_spans
from corag.core.types import Passage

_WORD = re.compile(r"\w+")
_LETTERS = (
    5  # words are the same if they begin alike: "written" and "writer" are not, "founded", "founder" are
)
_SHORTEST = 4  # letters of a word that counts: what is shorter is mostly grammar, in many languages


def excerpts(passages: Sequence[Passage], query: str, most: int) -> list[Passage]:
    """Return passages, best first: the best one whole, of the others :func:`excerpt`; all whole for 0.

    On training questions (docs/log.md) the answer stands in what is shown as often as in whole
    passages, and shortening the best one, too, loses more than reading fewer passages would.
    """
    if not most:
        return list(passages)
    return [*passages[:1], *(excerpt(passage, query, most) for passage in passages[1:])]


def excerpt(passage: Passage, query: str, most: int) -> Passage:
    """Return a passage with ``most`` of its sentences at most, in their order; title and id stay.

    The first one, which says what the passage is about, and those that share most words with ``query``; of
    equals the earlier. Words of the title count for nothing: every sentence is about it.
    """
    spans = list(sentence_spans(passage.text))
    if len(spans) <= most:
        return passage
    stems = _stems(query) - _stems(passage.title)
    overlaps = [len(stems & _stems(passage.text[start:end])) for start, end in spans]
    others = sorted(range(1, len(spans)), key=lambda position: -overlaps[position])
    return replace(passage, text=_join(passage.text, spans, sorted([0, *others[: most - 1]])))


def _stems(text: str) -> set[str]:
    """Return the beginnings of a text's words, without those that are mostly grammar."""
    is_script_unspaced = is_unspaced(text)
    chunks = (text[start:end] for start, end in word_spans(text)) if is_script_unspaced else (text,)
    words = (word for chunk in chunks for word in _WORD.findall(chunk.casefold()))
    return {
        word[:_LETTERS]
        for word in words
        if is_script_unspaced or len(word) >= _SHORTEST or not word.isalpha()
    }


def _join(text: str, spans: Sequence[tuple[int, int]], places: Sequence[int]) -> str:
    """Write some of a text's sentences: neighbours as they stand in it, others with a space between."""
    parts: list[str] = []
    end = -1
    for position in places:
        start, stop = spans[position]
        if parts:
            neighbours = end == position - 1
            before = text[spans[end][0] : spans[end][1]]
            parts.append(text[spans[end][1] : start] if neighbours else line_joint(before, text[start:stop]))
        parts.append(text[start:stop])
        end = position
    return "".join(parts)
