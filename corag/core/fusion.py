"""Merging rankings: reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009), and taking turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from corag.core.types import Hit, Passage


def fuse(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Score each passage by the sum of 1 / (60 + rank) over the rankings that have it, ranks from 1.

    Best first; equal scores keep the order of first appearance, ranking by ranking. Passages are the same if
    their ids are.
    """
    scores: dict[str, float] = {}
    passages: dict[str, Passage] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, 1):
            passages.setdefault(hit.passage.id, hit.passage)
            scores[hit.passage.id] = scores.get(hit.passage.id, 0.0) + 1 / (60 + rank)
    return sorted(
        (Hit(passages[identifier], score) for identifier, score in scores.items()), key=lambda hit: -hit.score
    )


def interleave(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Merge rankings rank by rank: the first hit of each, then the second of each; of a passage its first."""
    by_id: dict[str, Hit] = {}
    for rank in zip_longest(*rankings):
        for hit in rank:
            if hit is not None:
                by_id.setdefault(hit.passage.id, hit)
    return list(by_id.values())
