"""How much of what a question needs was found among the passages that a method collected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.text import mentions, normalize_answer

_NOT_IN_TEXT = frozenset({"", "yes", "no", "noanswer"})


def supporting_recall(collected: Sequence[str], supporting: Sequence[str], k: int) -> float | None:
    """Return the share of the gold passages among the first k different passages collected (a set measure, as in IRCoT).

    ``collected``: passage ids in order of collection. None if the question has no gold passages.

    >>> supporting_recall(["a", "b", "c"], ["c", "a"], k=2)
    0.5
    """
    if not supporting:
        return None
    found = set(list(dict.fromkeys(collected))[:k])
    gold = set(supporting)
    return len(found & gold) / len(gold)


def answer_recall(texts: Iterable[str], answers: Sequence[str]) -> float | None:
    """Return 1 if any text holds any gold answer as a run of whole normalised words, else 0 (CoRAG's table 4).

    None if no answer can be looked for in a text: yes, no, or empty after normalising.

    >>> answer_recall(["Oslo is the capital of Norway."], ["The Capital"])
    1.0
    """
    wanted = [answer for answer in answers if normalize_answer(answer) not in _NOT_IN_TEXT]
    if not wanted:
        return None
    return float(mentions(texts, wanted))
