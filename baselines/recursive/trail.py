"""What recursive RAG has searched and found for one question, and the final answer that is read from it.

No passage is collected twice, and, where ``outcomes`` is asked, no query is searched for twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from baselines.recursive.config import RecursiveConfig
from core.errors import BudgetExhaustedError
from core.gather import gather
from core.passage_pool import PassagePool
from core.prompting.prompt import Prompt
from core.prompting.render import render_passages
from core.prompting.shorten import count_segments
from core.reader import generate_answer, reader_prompt
from core.text import extract_answer, normalize_answer, stated_answer
from core.tools import Tools
from core.types import Hit, Passage, Question


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
class Searched:
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
    """The searches, passages and answered sub-questions so far, in the order in which they were asked.

    ``steps``: rounds of searches. ``malformed``: replies, or lines of a plan, that could not be read.
    ``fallbacks``: times that something simpler was done instead. ``repeats``: queries dropped because they
    had been searched for. ``path``: every search; ``references``: all that was referred to, where references
    are followed.
    """

    def __init__(self, config: RecursiveConfig, place: str = "") -> None:
        """``place``: what the paths of its searches begin with, for a trail of a sub-question's own."""
        self._config = config
        self._place = f"{place}/" if place else ""
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
        self.path: list[Searched] = []
        self.references: list[Reference] = []

    @property
    def passages(self) -> list[Passage]:
        """The passages collected, in order of collection."""
        return self._pool.passages

    @property
    def full(self) -> bool:
        """Whether no more passages are taken."""
        return len(self.passages) >= self._config.max_documents

    @property
    def depth(self) -> int:
        """The deepest round of searches."""
        return max((search.depth for search in self.path), default=0)

    def outcomes(self, queries: Iterable[str], limit: int) -> list[Outcome]:
        """Say of each query whether it is to be searched for: the first ``limit`` that are new and differ.

        A blank one counts as repeated.
        """
        # Compared as answers are: a change of case, article or mark finds the same passages.
        seen = {normalize_answer(query) for query in self.queries} | {""}
        said: list[Outcome] = []
        for query in queries:
            spelling = normalize_answer(query)
            if spelling in seen:
                self.repeats += bool(spelling)
                said.append("repeated")
            else:
                seen.add(spelling)
                said.append("followed" if said.count("followed") < limit else "over_limit")
        return said

    def fresh(self, queries: Sequence[str], limit: int) -> list[str]:
        """Return the first ``limit`` queries that are not blank, were not searched, and differ."""
        said = self.outcomes(queries, limit)
        return [query for query, outcome in zip(queries, said, strict=True) if outcome == "followed"]

    async def search(self, queries: Sequence[str], k: int, tools: Tools, why: Why) -> list[Passage]:
        """Search for all queries at the same time, as one step, and return the passages that are new."""
        self.steps += 1
        step = f"{self._place}step {self.steps}"
        paths = [
            f"{step}/query {number}" if len(queries) > 1 else step for number in range(1, len(queries) + 1)
        ]
        results = await gather(
            tools.search(query, k=k, path=path) for query, path in zip(queries, paths, strict=True)
        )
        before = len(self.passages)
        for query, path, hits in zip(queries, paths, results, strict=True):
            found = self._collect(query, hits)
            self.path.append(Searched(path, self.steps, query, why, found))
        return self.passages[before:]

    def join(self, other: Trail) -> None:
        """Take over what the trail of a sub-question has searched and found."""
        collected = {passage.id: passage for passage in other.passages}
        for search in other.path:
            found = self._collect(search.query, [Hit(collected[name], 0.0) for name in search.found])
            self.path.append(replace(search, found=found))
        self.references += other.references
        self.repeats += other.repeats

    def _collect(self, query: str, hits: Iterable[Hit]) -> tuple[str, ...]:
        before = len(self.passages)
        self.queries.append(query)
        self._pool.add(hits)
        return tuple(passage.id for passage in self.passages[before:])

    def shown(self, count: Callable[[str], int]) -> list[Passage]:
        """Return the passages that prompts show: the newest within ``context_tokens``, or the earliest.

        They are whole, at least one, and in order of collection. ``count``: of a text's tokens.
        """
        limit = self._config.context_tokens
        if not limit:
            return list(self.passages)
        newest_first = self._config.context_policy == "keep_last"
        kept: list[Passage] = []
        spent = 0
        for passage in reversed(self.passages) if newest_first else self.passages:
            spent += count(passage.contents)
            if kept and spent > limit:
                break
            kept.append(passage)
        return kept[::-1] if newest_first else kept


@dataclass(frozen=True, slots=True)
class FinalReading:
    """The final answer.

    ``left_out``: collected passages that its prompt did not show. ``affordable``: whether the budget allowed
    the call as it was meant to be, with nothing left out for its sake. ``note``: what of the reply the text
    is, "" if it is all of it or what it states as the answer.
    """

    text: str
    left_out: int
    affordable: bool
    note: str = ""


async def final_answer(
    question: Question, trail: Trail, tools: Tools, config: RecursiveConfig
) -> FinalReading:
    """Answer the question from what was found; passages go by ``context_policy`` if the budget is too small.

    If it is too small even without passages, the last sub-answer has to do, or an empty answer.
    """
    whole = final_prompt(question, trail, tools, config)
    prompt = tools.afford(whole, config.max_answer_tokens)
    try:
        reply = await generate_answer(prompt, config.max_answer_tokens, tools, path="end")
    except BudgetExhaustedError:
        answers = [found.sub_answer for found in trail.findings if found.sub_answer]
        return FinalReading(answers[-1] if answers else "", len(trail.passages), affordable=False)
    shown = count_segments(prompt, "passage") - reply.shortening.count("passage")
    # A plain prompt ends the reply with its first line, so there "whole" is that line.
    text, note = (reply.text.strip(), "") if config.answer == "whole" else short_answer(reply.text)
    return FinalReading(text, len(trail.passages) - shown, prompt == whole, note)


def short_answer(reply: str) -> tuple[str, str]:
    r"""Return the answer that a reply gives, and a note if it is the first of several lines, else "".

    >>> short_answer("Oslo.\nIt lies in Norway.")
    ('Oslo', 'the first of 2 lines of the reply')
    >>> short_answer("It lies in Norway.\nSo the answer is: Oslo.")
    ('Oslo', '')
    """
    lines = [line for line in reply.splitlines() if line.strip()]
    cut = len(lines) > 1 and all(stated_answer(line) is None for line in lines)
    return extract_answer(reply), f"the first of {len(lines)} lines of the reply" if cut else ""


def final_prompt(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> Prompt:
    """Ask the reader that all methods share; after sub-questions, ask with their answers."""
    passages = trail.shown(tools.count_tokens)
    if trail.findings:
        return combine_prompt(question, trail.findings, passages, config)
    return reader_prompt(question, passages, config, goes_first=config.goes_first)


def combine_prompt(
    question: Question,
    findings: Sequence[AnsweredSubQuestion],
    passages: Sequence[Passage],
    config: RecursiveConfig,
) -> Prompt:
    """Ask for the answer with sub-questions, their answers, and passages."""
    template = config.prompt("combine")
    items = [
        {"sub_query": found.sub_question, "sub_answer": found.sub_answer or "unknown"} for found in findings
    ]
    return template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(
                passages, template, config.max_shown_words, goes_first=config.goes_first
            ),
            "hops": template.items("hop", items),
        }
    )
