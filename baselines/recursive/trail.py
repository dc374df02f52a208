"""What recursive RAG has searched and found for one question, and the final answer that is read from it.

No passage is collected twice, and, where ``fresh`` is asked, no query is searched for twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from baselines.recursive.config import RecursiveConfig
from core.errors import BudgetExhaustedError
from core.gather import gather
from core.passage_pool import PassagePool
from core.prompting.prompt import Prompt
from core.prompting.render import render_passages
from core.prompting.shorten import count_segments
from core.reader import generate_answer, reader_prompt
from core.text import extract_answer, normalize_answer
from core.tools import Tools
from core.types import Hit, Passage, Question


@dataclass(frozen=True, slots=True)
class AnsweredPart:
    """A sub-question, as it was asked, with its answer, "" if it has none.

    ``status``: "answered", "unknown" (the passages did not tell), "nothing_found" or "budget".
    """

    number: int
    sub_question: str
    sub_answer: str
    status: str


class Trail:
    """The searches, passages and answered sub-questions so far, in the order in which they were asked.

    ``steps``: rounds of searches. ``malformed``: replies, or lines of a plan, that could not be read.
    ``fallbacks``: times that something simpler was done instead. ``repeats``: queries dropped because they
    had been searched for.
    """

    def __init__(self, config: RecursiveConfig) -> None:
        self._config = config
        # Passages are the same if title and text are, whatever their ids (near duplicates are not: 101
        # percent is out of reach), and none is too long.
        self._pool = PassagePool(config.max_documents, max_words=sys.maxsize, near_duplicate=101)
        self.queries: list[str] = []
        self.findings: list[AnsweredPart] = []
        self.steps = 0
        self.malformed = 0
        self.fallbacks = 0
        self.repeats = 0
        self.plan_problem = ""

    @property
    def passages(self) -> list[Passage]:
        """The passages collected, in order of collection."""
        return self._pool.passages

    @property
    def full(self) -> bool:
        """Whether no more passages are taken."""
        return len(self.passages) >= self._config.max_documents

    def fresh(self, queries: Iterable[str], limit: int) -> list[str]:
        """Return the first ``limit`` queries that are not blank, were not searched, and differ."""
        # Compared as answers are: a change of case, article or mark finds the same passages.
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
        self._pool.add(hits)

    def shown(self, count: Callable[[str], int]) -> list[Passage]:
        """Return the passages that prompts show: the newest within ``context_tokens``.

        They are whole, at least one, and in order of collection. ``count``: of a text's tokens.
        """
        limit = self._config.context_tokens
        if not limit:
            return list(self.passages)
        # The newest were searched for to close a gap, so the oldest are left out.
        kept: list[Passage] = []
        spent = 0
        for passage in reversed(self.passages):
            spent += count(passage.contents)
            if kept and spent > limit:
                break
            kept.append(passage)
        return kept[::-1]


@dataclass(frozen=True, slots=True)
class FinalReading:
    """The final answer.

    ``left_out``: collected passages that its prompt did not show. ``affordable``: whether the budget allowed
    the call as it was meant to be, with nothing left out for its sake.
    """

    text: str
    left_out: int
    affordable: bool


async def final_answer(
    question: Question, trail: Trail, tools: Tools, config: RecursiveConfig
) -> FinalReading:
    """Answer the question from what was found; the oldest passages go if the budget is too small for all.

    If it is too small even without passages, the last sub-answer has to do, or an empty answer.
    """
    whole = final_prompt(question, trail, tools, config)
    prompt = tools.afford(whole, config.max_answer_tokens)
    try:
        reply = await generate_answer(prompt, config.max_answer_tokens, tools, path="end")
    except BudgetExhaustedError:
        answers = [part.sub_answer for part in trail.findings if part.sub_answer]
        return FinalReading(answers[-1] if answers else "", len(trail.passages), affordable=False)
    shown = count_segments(prompt, "passage") - reply.shortening.count("passage")
    return FinalReading(extract_answer(reply.text), len(trail.passages) - shown, affordable=prompt == whole)


def final_prompt(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> Prompt:
    """Ask the reader that all methods share; after sub-questions, ask with their answers."""
    passages = trail.shown(tools.count_tokens)
    if trail.findings:
        return combine_prompt(question, trail.findings, passages, config)
    return reader_prompt(question, passages, config)


def combine_prompt(
    question: Question, findings: Sequence[AnsweredPart], passages: Sequence[Passage], config: RecursiveConfig
) -> Prompt:
    """Ask for the answer with sub-questions, their answers, and passages."""
    template = config.prompt("combine")
    items = [
        {"sub_query": found.sub_question, "sub_answer": found.sub_answer or "unknown"} for found in findings
    ]
    return template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(passages, template, config.max_shown_words, goes_first="first"),
            "hops": template.items("hop", items),
        }
    )
