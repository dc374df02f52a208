"""What recursive RAG has searched for and found for one question."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from corag.baselines.recursive.config import RecursiveConfig
from corag.core.gather import gather
from corag.core.passage_pool import PassagePool
from corag.core.prompting.prompt import Segment
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import Template
from corag.core.text import normalize_answer
from corag.core.tools import Tools
from corag.core.types import Hit, Passage


@dataclass(frozen=True, slots=True)
class AnsweredSubQuestion:
    """A sub-question, as it was asked, with its answer, "" if it has none.

    ``status``: "answered", "unknown" (the passages did not tell), "nothing_found" or "budget". ``note``: what
    of the reply the answer is, "" if it is all of it.
    """

    number: int
    sub_question: str
    sub_answer: str
    status: str
    note: str = ""


Why = Literal["question", "sub_question", "reference", "next_query", "follow_up"]


@dataclass(frozen=True, slots=True)
class PathSearch:
    """A search of the retrieval path.

    ``path``: its step in the trace. ``depth``: the round that it belongs to, from 1; each sub-question begins
    at 1. ``why``: what the query is. ``found``: ids of the passages that it was the first to find.
    """

    path: str
    depth: int
    query: str
    why: Why
    found: tuple[str, ...]


Outcome = Literal["followed", "repeated", "over_limit", "max_depth", "max_documents"]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a passage refers to.

    ``why``: the words that say so, as they stand there, or "link". ``depth``: the round that found the
    passage. ``outcome``: "followed" (searched for in the next round), "repeated" (it had been searched for,
    or another passage refers to it too), "over_limit" (of ``max_references``), or the limit that ended the
    search, "max_depth" or "max_documents".
    """

    passage_id: str
    reference: str
    why: str
    depth: int
    outcome: Outcome


class Trail:
    """What was searched for and found for a question so far, in the order in which it was asked.

    No passage is collected twice, and, where :meth:`outcomes` decides, no query is searched for twice.

    ``steps``: rounds of searches. ``malformed``: replies, or lines of a plan, that could not be read.
    ``fallbacks``: times that something simpler was done instead. ``repeats``: queries dropped because they
    had been searched for. ``path``: every search; ``references``: all that was referred to, where references
    are followed.
    """

    def __init__(self, tools: Tools, config: RecursiveConfig, prefix: str = "") -> None:
        """``prefix``: what the paths of its searches begin with, for a trail of a sub-question's own."""
        self.tools = tools
        self.config = config
        self._prefix = f"{prefix}/" if prefix else ""
        # Passages are the same if title and text are, whatever their ids (near duplicates are not: 101
        # percent is out of reach), and none is too long.
        self._pool = PassagePool(config.max_documents, max_words=sys.maxsize, near_duplicate=101)
        self.queries: list[str] = []
        self.findings: list[AnsweredSubQuestion] = []
        self.steps = 0
        self.malformed = 0
        self.fallbacks = 0
        self.repeats = 0
        self.plan_problem = ""
        self.path: list[PathSearch] = []
        self.references: list[Reference] = []

    @property
    def passages(self) -> list[Passage]:
        """The passages collected, in order of collection."""
        return self._pool.passages

    @property
    def full(self) -> bool:
        """Whether no more passages are taken."""
        return len(self.passages) >= self.config.max_documents

    @property
    def depth(self) -> int:
        """The deepest round of searches."""
        return max((search.depth for search in self.path), default=0)

    def outcomes(self, queries: Iterable[str], limit: int) -> list[Outcome]:
        """Decide for each query whether to search for it: for the first ``limit`` that are new and differ.

        A blank one counts as repeated.
        """
        # Compared as answers are: a change of case, article or mark finds the same passages.
        spellings = {normalize_answer(query) for query in self.queries} | {""}
        outcomes: list[Outcome] = []
        for query in queries:
            spelling = normalize_answer(query)
            if spelling in spellings:
                self.repeats += bool(spelling)
                outcomes.append("repeated")
            else:
                spellings.add(spelling)
                outcomes.append("followed" if outcomes.count("followed") < limit else "over_limit")
        return outcomes

    def fresh(self, queries: Sequence[str], limit: int) -> list[str]:
        """Return the first ``limit`` queries that are not blank, were not searched, and differ."""
        outcomes = self.outcomes(queries, limit)
        return [query for query, outcome in zip(queries, outcomes, strict=True) if outcome == "followed"]

    async def search(self, queries: Sequence[str], k: int, why: Why) -> list[Passage]:
        """Search for all queries at the same time, as one step, and return the passages that are new."""
        self.steps += 1
        step = f"{self._prefix}step {self.steps}"
        paths = [
            f"{step}/query {number}" if len(queries) > 1 else step for number in range(1, len(queries) + 1)
        ]
        results = await gather(
            self.tools.search(query, k=k, path=path) for query, path in zip(queries, paths, strict=True)
        )
        before = len(self.passages)
        for query, path, hits in zip(queries, paths, results, strict=True):
            self.path.append(PathSearch(path, self.steps, query, why, self._collect(query, hits)))
        return self.passages[before:]

    def join(self, other: Trail) -> None:
        """Take over what the trail of a sub-question has searched and found."""
        passage_by_id = {passage.id: passage for passage in other.passages}
        for search in other.path:
            hits = self._collect(search.query, [Hit(passage_by_id[name], 0.0) for name in search.found])
            self.path.append(replace(search, found=hits))
        self.references += other.references
        self.repeats += other.repeats

    def _collect(self, query: str, hits: Iterable[Hit]) -> tuple[str, ...]:
        before = len(self.passages)
        self.queries.append(query)
        self._pool.add(hits)
        return tuple(passage.id for passage in self.passages[before:])

    def prompt_passages(self) -> list[Passage]:
        """Return the passages that prompts show: the newest within ``context_tokens``, or the earliest.

        They are whole, at least one, and in order of collection.
        """
        limit = self.config.context_tokens
        if not limit:
            return list(self.passages)
        newest_first = self.config.context_policy == "keep_last"
        passages = self.passages[::-1] if newest_first else self.passages
        sizes = accumulate(self.tools.count_tokens(passage.contents) for passage in passages)
        fit = passages[: max(1, sum(size <= limit for size in sizes))]
        return fit[::-1] if newest_first else fit

    def render(self, template: Template, passages: Sequence[Passage]) -> list[Segment]:
        """Write passages; a prompt that is too long loses them by ``context_policy``."""
        return render_passages(
            passages, template, self.config.max_shown_words, goes_first=self.config.goes_first
        )
