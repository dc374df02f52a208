"""IterDRAG (Yue et al.: Inference Scaling for Long-Context Retrieval Augmented Generation, 2024, arXiv 2410.04343, section 3.3).

DRAG that asks sub-queries on the way, in Self-Ask's form: "Follow up:", whose documents are added to the prompt, "Intermediate
answer:", and in the end "So the final answer is:". The paper's constrained decoding lets the model write nothing else. Here a stop
string ends a reply where it would answer without documents; an intermediate answer is opened for the model, and so is the final
answer after the last sub-query or a reply without a line of the form; other lines are ignored. Further differences: DRAG's, and a
document that is found again is not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from baselines.drag import DRAGConfig, demonstrate, fill, look_up
from baselines.forced_answer import force_answer
from baselines.transcripts import FOLLOW_UP_WORDS
from core.demonstrations import Demonstration
from core.errors import BudgetExhaustedError, ConfigError, DataError
from core.fitting import reserve
from core.fusion import interleave
from core.prompt import Prompt
from core.text import extract_answer
from core.tools import Tools
from core.types import Answer, Hit, Question

FOLLOW_UP, INTERMEDIATE, FINAL = "Follow up:", "Intermediate answer:", "So the final answer is:"
_MOVE = re.compile(
    rf"^[\s*_>-]*(?:\d+[.)][\s*_]*)?(?:{FOLLOW_UP_WORDS}(?P<sub_query>.*)"
    r"|so,? the final answer is[*_]*:?(?P<answer>.*))$",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class IterDRAGConfig(DRAGConfig):
    """Options of IterDRAG: those of DRAG, whose demonstrations must be in the form that IterDRAG writes, and two more.

    Attributes:
        max_iterations: sub-queries at most (paper: 5).
        max_step_tokens: most tokens generated at once: an intermediate answer and the next sub-query.
        prompt: a shipped name, a file, or a text with {demonstrations}, {passages}, {query} and {transcript}.
    """

    max_iterations: int = 5
    max_step_tokens: int = 128
    prompt: str = "iterdrag"

    SHIPPED: ClassVar[str] = "iterdrag"
    FORM: ClassVar[str] = "iterdrag"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.max_iterations, self.max_step_tokens) < 1:
            raise ConfigError("iterdrag's max_iterations and max_step_tokens must be at least 1.")

    def examples(self) -> tuple[Demonstration, ...]:
        """Load the demonstrations. Raises :class:`DataError` for one that is not in the form."""
        chosen = self.chosen(direct=False)
        for demonstration in chosen:
            if FINAL not in demonstration.answer:
                raise DataError(
                    f"{self.demonstrations}, demonstration '{demonstration.qid}': expected an answer of lines '{FOLLOW_UP} ...' "
                    f"and '{INTERMEDIATE} ...' that ends in '{FINAL} ...' (chains of thought will do for drag, not for iterdrag)."
                )
        return chosen


@dataclass(frozen=True, slots=True)
class SubQuery:
    """A sub-query with its intermediate answer, "" if there is none, and the ids of the documents that it added."""

    text: str
    passage_ids: tuple[str, ...]
    answer: str = ""


@dataclass(frozen=True, slots=True)
class IterDRAGAnswer(Answer):
    """``steps``: sub-queries. ``stopped``: "answer", "max_iterations", "unparsable" (a reply has no line of the form), "budget".

    ``passage_ids``: the best new document of every search, the question's first, then the second of each, and so on.
    """

    sub_queries: tuple[SubQuery, ...] = ()


async def iterdrag(question: Question, tools: Tools, config: IterDRAGConfig) -> IterDRAGAnswer:
    """Answer one question with IterDRAG: ask, retrieve and answer sub-queries until the final answer is stated, or due."""
    demonstrations = await demonstrate(tools, config)
    searches: list[Sequence[Hit]] = [await look_up(question.text, "question", tools, config)]
    asked: list[SubQuery] = []
    lines: list[str] = []
    answer, stopped, opening = "", "", ""

    def prompt(opening: str) -> Prompt:
        return fill(question.text, demonstrations, searches, config, "\n".join([*lines, opening]))

    try:
        while not stopped:
            path = f"iteration {len(asked)}{' answer' if opening else ''}"
            with tools.holding(reserve(prompt(FINAL), config.max_answer_tokens, tools)):
                reply = await tools.generate(
                    prompt(opening), role="step", max_tokens=config.max_step_tokens, stop=(INTERMEDIATE,), path=path
                )
            written = [line.strip() for line in reply.text.splitlines() if line.strip()]
            if opening:  # the reply begins with the newest sub-query's answer
                sub_answer = "" if not written or _MOVE.match(written[0]) else written.pop(0)
                asked[-1] = replace(asked[-1], answer=sub_answer)
                lines.append(f"{INTERMEDIATE} {sub_answer}".strip())
                opening = ""
                if not written and len(asked) < config.max_iterations:
                    continue  # and the model ended its turn there
            move = _MOVE.search("\n".join(written))
            sub_query = (move["sub_query"] or "").strip("*_ ") if move else ""
            answer = extract_answer((move["answer"] or "").strip("*_ ")) if move else ""
            if answer:
                stopped = "answer"
            elif len(asked) == config.max_iterations:
                stopped = "max_iterations"
            elif not sub_query:
                stopped = "unparsable"
            else:
                hits = await look_up(sub_query, f"iteration {len(asked) + 1}", tools, config)
                known = {hit.passage.id for earlier in searches for hit in earlier}
                searches.append([hit for hit in hits if hit.passage.id not in known])
                asked.append(SubQuery(sub_query, tuple(hit.passage.id for hit in searches[-1])))
                lines.append(f"{FOLLOW_UP} {sub_query}")
                opening = INTERMEDIATE
        answer = answer or await force_answer(prompt(FINAL), config.max_answer_tokens, tools)
    except BudgetExhaustedError:
        stopped = "budget"
        answer = next((earlier.answer for earlier in reversed(asked) if earlier.answer), "")
        with suppress(BudgetExhaustedError):
            answer = await force_answer(prompt(FINAL), config.max_answer_tokens, tools)
    found = tuple(hit.passage.id for hit in interleave(searches))  # so that the first few show every search
    return IterDRAGAnswer(answer, found, len(asked), stopped, tuple(asked))
