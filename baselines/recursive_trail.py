"""What recursive RAG has searched and found for one question: no passage twice, and, where ``fresh`` is
asked, no query.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from baselines.recursive_config import RecursiveConfig
from core.gather import gather
from core.passage_pool import PassagePool
from core.text import normalize_answer
from core.tools import Tools
from core.types import Hit, Passage


@dataclass(frozen=True, slots=True)
class Finding:
    """A sub-question, as it was asked, with its answer, "" if it has none.

    ``status``: "answered", "unknown" (the passages did not tell), "nothing_found" or "budget".
    """

    number: int
    sub_question: str
    sub_answer: str
    status: str


class Trail:
    """The searches, passages and findings so far, in the order of the questions asked, whichever search was
    answered first.

    ``steps``: rounds of searches. ``malformed``: replies, or lines of a plan, that could not be read.
    ``fallbacks``: times that something simpler was done instead. ``repeats``: queries dropped because they
    had been searched for.
    """

    def __init__(self, config: RecursiveConfig) -> None:
        """Start with nothing.

        Passages are the same if title and text are, whatever their ids; none is too long.
        """
        self._config = config
        self._collected = PassagePool(config.max_documents, max_words=sys.maxsize, near_duplicate=101)
        self.queries: list[str] = []
        self.findings: list[Finding] = []
        self.steps = 0
        self.malformed = 0
        self.fallbacks = 0
        self.repeats = 0
        self.plan_problem = ""

    @property
    def passages(self) -> list[Passage]:
        """The passages collected, in order of collection."""
        return self._collected.passages

    @property
    def full(self) -> bool:
        """Whether no more passages are taken."""
        return len(self.passages) >= self._config.max_documents

    def fresh(self, queries: Iterable[str], limit: int) -> list[str]:
        """Return the first ``limit`` queries that are not blank and repeat neither what was searched nor each
        other.
        """
        seen = {normalize_answer(query) for query in self.queries} | {""}
        new = []
        for query in queries:
            spelling = normalize_answer(query)
            if spelling not in seen:
                seen.add(spelling)
                new.append(query)
            elif spelling:
                self.repeats += 1
        return new[:limit]

    async def search(self, queries: Sequence[str], k: int, tools: Tools) -> list[Passage]:
        """Search for all queries at the same time, as one step, and return the passages that are new."""
        self.steps += 1
        path = f"step {self.steps}"
        results = await gather(
            tools.search(query, k=k, path=f"{path}/query {number}" if len(queries) > 1 else path)
            for number, query in enumerate(queries, 1)
        )
        before = len(self.passages)
        for query, hits in zip(queries, results, strict=True):
            self.add(query, hits)
        return self.passages[before:]

    def add(self, query: str, hits: Iterable[Hit]) -> None:
        """Note a search and what it found."""
        self.queries.append(query)
        self._collected.add(hits)

    def shown(self, count: Callable[[str], int]) -> list[Passage]:
        """Return the passages that prompts show: whole ones, the newest within ``context_tokens``, in order
        of collection.

        ``count``: of a text's tokens.
        """
        limit = self._config.context_tokens
        if not limit:
            return list(self.passages)
        kept: list[Passage] = []
        spent = 0
        for passage in reversed(self.passages):
            spent += count(passage.contents)
            if kept and spent > limit:
                break
            kept.append(passage)
        return kept[::-1]
