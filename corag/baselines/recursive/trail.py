"""What recursive RAG has searched for and found for one question."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from corag.core.gather import gather
from corag.core.language.text import normalize_answer
from corag.core.passage_pool import PassagePool
from corag.core.tools import Tools
from corag.core.types import Hit, Passage

Why = Literal["question", "reference", "next_query", "follow_up"]


@dataclass(frozen=True, slots=True)
class PathSearch:
    """A search of the retrieval path.

    ``path``: its step in the trace. ``depth``: the round that it belongs to, from 1. ``why``: what the query
    is. ``found``: ids of the passages that it was the first to find.
    """

    path: str
    depth: int
    query: str
    why: Why
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a passage refers to.

    ``why``: the words that say so, as they stand there, or "link". ``depth``: the round that found the
    passage. ``followed``: whether it was searched for in the next round.
    """

    passage_id: str
    reference: str
    why: str
    depth: int
    followed: bool


class Trail:
    """What was searched for and found for a question so far, in the order in which it was asked.

    No passage is collected twice. ``steps``: rounds of searches. ``malformed``: replies that could not be
    read. ``path``: every search; ``references``: all that was referred to, where references are followed.
    """

    def __init__(self, tools: Tools, most: int) -> None:
        """``most``: passages at most."""
        self.tools = tools
        self._most = most
        # Passages are the same if title and text are, whatever their ids (near duplicates are not: 101
        # percent is out of reach), and none is too long.
        self._pool = PassagePool(most, max_words=sys.maxsize, near_duplicate=101)
        self.steps = 0
        self.malformed = 0
        self.path: list[PathSearch] = []
        self.references: list[Reference] = []

    @property
    def passages(self) -> list[Passage]:
        """The passages collected, in order of collection."""
        return self._pool.passages

    @property
    def full(self) -> bool:
        """Whether no more passages are taken."""
        return len(self.passages) >= self._most

    def fresh(self, queries: Sequence[str], limit: int) -> list[str]:
        """Return the first ``limit`` queries that are not blank, were not searched, and differ."""
        # Compared as answers are: a change of case, article or mark finds the same passages.
        searched = {normalize_answer(search.query) for search in self.path} | {""}
        by_spelling: dict[str, str] = {}
        for query in queries:
            by_spelling.setdefault(normalize_answer(query), query)
        return [query for spelling, query in by_spelling.items() if spelling not in searched][:limit]

    async def search(self, queries: Sequence[str], k: int, why: Why) -> list[Passage]:
        """Search for all queries at the same time, as one step, and return the passages that are new."""
        self.steps += 1
        step = f"step {self.steps}"
        paths = [
            f"{step}/query {number}" if len(queries) > 1 else step for number in range(1, len(queries) + 1)
        ]
        results = await gather(
            self.tools.search(query, k=k, path=path) for query, path in zip(queries, paths, strict=True)
        )
        before = len(self.passages)
        for query, path, hits in zip(queries, paths, results, strict=True):
            self.path.append(PathSearch(path, self.steps, query, why, self._collect(hits)))
        return self.passages[before:]

    def _collect(self, hits: Iterable[Hit]) -> tuple[str, ...]:
        before = len(self.passages)
        self._pool.add(hits)
        return tuple(passage.id for passage in self.passages[before:])
