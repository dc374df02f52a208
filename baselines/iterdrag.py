"""IterDRAG (Yue et al.: Inference Scaling for Long-Context Retrieval Augmented Generation, 2024, arXiv 2410.04343, section 3.3).

DRAG that asks sub-queries on the way, in Self-Ask's form: "Follow up:", whose documents are added to the prompt, "Intermediate
answer:", and in the end "So the final answer is:". Decoding is constrained to these lines, as in the paper: where a line begins the
likelier of the two openings that may stand there is written for the model, and what it writes ends with the line. Differences:
DRAG's, and a document that is found again is not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from baselines.drag import DRAGConfig, demonstrate, fill, look_up
from baselines.forced_answer import force_answer
from core.demonstrations import Demonstration
from core.errors import BudgetExhaustedError, ConfigError, DataError
from core.fitting import reserve
from core.fusion import interleave
from core.prompt import Prompt
from core.tools import Tools
from core.types import Answer, Hit, Question

FOLLOW_UP, INTERMEDIATE, FINAL = "Follow up:", "Intermediate answer:", "So the final answer is:"


@dataclass(frozen=True)
class IterDRAGConfig(DRAGConfig):
    """Options of IterDRAG: those of DRAG, whose demonstrations must be in the form that IterDRAG writes, and two more.

    Attributes:
        max_iterations: sub-queries at most (paper: 5).
        max_step_tokens: most tokens of a sub-query, and of an intermediate answer.
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
    """``steps``: sub-queries. ``stopped``: "answer", "max_iterations", "empty_generation" (a sub-query without words) or "budget".

    ``passage_ids``: the best new document of every search, the question's first, then the second of each, and so on.
    """

    sub_queries: tuple[SubQuery, ...] = ()


async def iterdrag(question: Question, tools: Tools, config: IterDRAGConfig) -> IterDRAGAnswer:
    """Answer one question with IterDRAG: ask, retrieve and answer sub-queries until the model begins the final answer, or must."""
    demonstrations = await demonstrate(tools, config)
    searches: list[Sequence[Hit]] = [await look_up(question.text, "question", tools, config)]
    asked: list[SubQuery] = []
    lines: list[str] = []
    answer, stopped = "", ""

    def prompt(opening: str) -> Prompt:
        return fill(question.text, demonstrations, searches, config, "\n".join([*lines, opening]))

    try:
        while not stopped:
            path = f"iteration {len(asked) + 1}"
            with tools.holding(reserve(prompt(FINAL), config.max_answer_tokens, tools)):
                if len(asked) == config.max_iterations:
                    stopped = "max_iterations"
                elif await would_answer(prompt(""), tools, path=path):
                    stopped = "answer"
                elif not (sub_query := await write_line(prompt(FOLLOW_UP), "follow_up", tools, config, path=path)):
                    stopped = "empty_generation"
            if stopped:
                break
            hits = await look_up(sub_query, path, tools, config)
            known = {hit.passage.id for earlier in searches for hit in earlier}
            searches.append([hit for hit in hits if hit.passage.id not in known])
            asked.append(SubQuery(sub_query, tuple(hit.passage.id for hit in searches[-1])))
            lines.append(f"{FOLLOW_UP} {sub_query}")
            with tools.holding(reserve(prompt(FINAL), config.max_answer_tokens, tools)):
                sub_answer = await write_line(prompt(INTERMEDIATE), "intermediate", tools, config, path=path)
            asked[-1] = replace(asked[-1], answer=sub_answer)
            lines.append(f"{INTERMEDIATE} {sub_answer}".strip())
    except BudgetExhaustedError:
        stopped = "budget"
        answer = next((earlier.answer for earlier in reversed(asked) if earlier.answer), "")
    with suppress(BudgetExhaustedError):
        answer = await force_answer(prompt(FINAL), config.max_answer_tokens, tools)
    found = tuple(hit.passage.id for hit in interleave(searches))  # so that the first few show every search
    return IterDRAGAnswer(answer, found, len(asked), stopped, tuple(asked))


async def would_answer(prompt: Prompt, tools: Tools, *, path: str) -> bool:
    """Whether the model would rather begin the final answer than another sub-query: greedy decoding between the two openings.

    It is decided where they part, at their first token.
    """
    ask, answer = [
        (await tools.score(prompt, opening.split()[0], role="opening", path=path)).token_logprobs[0]
        for opening in (FOLLOW_UP, FINAL)
    ]
    return answer > ask


async def write_line(prompt: Prompt, role: str, tools: Tools, config: IterDRAGConfig, *, path: str) -> str:
    """Let the model finish the line that was begun for it; what it would write in further lines is not its turn."""
    stop = (FOLLOW_UP, INTERMEDIATE, FINAL)
    reply = await tools.generate(prompt, role=role, max_tokens=config.max_step_tokens, stop=stop, path=path)
    written = (line.strip("*_ \t") for line in reply.text.splitlines())
    return next(filter(None, written), "")
