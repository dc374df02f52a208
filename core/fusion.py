"""Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Sequence

from core.types import Hit, Passage


def fuse(rankings: Sequence[Sequence[Hit]], rrf_k: int = 60) -> list[Hit]:
    """Score each passage by the sum of 1 / (rrf_k + rank) over the rankings that have it, ranks from 1; best first.

    Passages are the same if their ids are. Equal scores keep the order of first appearance, ranking by ranking.
    """
    scores: dict[str, float] = {}
    passages: dict[str, Passage] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, 1):
            passages.setdefault(hit.passage.id, hit.passage)
            scores[hit.passage.id] = scores.get(hit.passage.id, 0.0) + 1 / (rrf_k + rank)
    return sorted(
        (Hit(passages[identifier], score) for identifier, score in scores.items()), key=lambda hit: -hit.score
    )
