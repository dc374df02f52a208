"""IterDRAG (Yue et al.: Inference Scaling for Long-Context Retrieval Augmented Generation, 2024).

arXiv 2410.04343, section 3.3. DRAG that asks sub-queries on the way, in Self-Ask's form: "Follow up:", whose
documents are added to the prompt, "Intermediate answer:", and in the end "So the final answer is:". The paper
reports the best setting under each budget of input tokens; iteration pays only where that budget is large.

Differences, and why:

- Those of DRAG.
- The paper constrains decoding to these lines, which many engines cannot. Here a model that begins a line in
  one of the two ways that may stand there has decided as constrained greedy decoding would; for any other the
  likelier of the two is written.
- A document that is found again is not repeated: it stands in the prompt already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from corag.baselines.drag import DRAGConfig, demonstrate, fill, look_up
from corag.baselines.shared import force_answer
from corag.baselines.transcripts import EXAMPLES, FINAL, FOLLOW_UP, INTERMEDIATE
from corag.core.errors import BudgetExhaustedError, DataError
from corag.core.fusion import interleave
from corag.core.language.text import extract_answer
from corag.core.method import Method
from corag.core.options.names import NameOrPath
from corag.core.prompting.demonstrations import Demonstration
from corag.core.prompting.prompt import Prompt
from corag.core.protocols import Ability
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Question

_OPENING_TOKENS = 16  # of "Intermediate answer:" and its line break, at most


@dataclass(frozen=True)
class IterDRAGConfig(DRAGConfig, section="iterdrag"):
    """Options of IterDRAG: those of DRAG, with demonstrations as IterDRAG writes them, and two more."""

    demonstrations: NameOrPath = ""
    """file of worked examples whose answers have the form that iterdrag writes, "default" for the shipped
    four, or "" for none."""

    max_iterations: Annotated[int, Ge(1)] = 5
    """sub-queries at most (paper: 5)."""

    max_step_tokens: Annotated[int, Ge(1)] = 128
    """most tokens of a sub-query, and of an intermediate answer."""

    prompt: NameOrPath = "iterdrag"
    """a shipped name, a file, or a text with {demonstrations}, {passages}, {query} and {transcript}."""

    def shipped_examples(self) -> Path:
        """The shipped examples, whose answers are lines of sub-queries and their answers."""
        return EXAMPLES / "iterdrag.txt"

    def needs(self) -> Mapping[Ability, str]:
        """Where a step begins with neither of its words, the likelier one is taken."""
        return {Ability.SCORES: ""}

    def examples(self) -> tuple[Demonstration, ...]:
        """Load the demonstrations. Raises :class:`DataError` for one that is not in the form."""
        examples = self.load_examples()
        for demonstration in examples:
            if FINAL not in demonstration.answer:
                raise DataError(
                    f"{self.demonstrations}, demonstration '{demonstration.qid}': expected an answer of "
                    f"lines '{FOLLOW_UP} ...' and '{INTERMEDIATE} ...' that ends in '{FINAL} ...' (chains of "
                    "thought will do for drag, not for iterdrag)."
                )
        return examples


@dataclass(frozen=True, slots=True)
class IterDRAGHop:
    """A sub-query, the ids of the documents that it added, and its intermediate answer, perhaps ""."""

    text: str
    passage_ids: tuple[str, ...]
    answer: str = ""


@dataclass(frozen=True, slots=True)
class IterDRAGAnswer(Answer):
    """IterDRAG's result.

    ``steps``: sub-queries. ``stopped``: "answer", "max_iterations", "empty_generation" (a sub-query without
    words) or "budget". ``passage_ids``: the best new document of every search, the question's first, then the
    second of each, and so on.
    """

    sub_queries: tuple[IterDRAGHop, ...] = ()


async def iterdrag(question: Question, tools: Tools, config: IterDRAGConfig) -> IterDRAGAnswer:
    """Answer one question with IterDRAG (paper, section 3.3)."""
    demonstrations = await demonstrate(tools, config)
    # 1. The question's own documents, as in DRAG.
    searches: list[Sequence[Hit]] = [await look_up(question.text, "question", tools, config)]
    hops: list[IterDRAGHop] = []
    lines: list[str] = []
    answer, stop_reason = "", ""

    def prompt(opening: str) -> Prompt:
        return fill(question.text, demonstrations, searches, config, "\n".join([*lines, opening]))

    # The final answer reads one line more than now.
    most = config.max_answer_tokens + config.max_step_tokens + _OPENING_TOKENS

    try:
        while len(hops) < config.max_iterations:
            path = f"iteration {len(hops) + 1}"
            # 2. A sub-query, or the final answer.
            with tools.reserve(prompt(FINAL), most):
                opening, text = await next_line(prompt, tools, config, path=path)
            if opening == FINAL:
                answer, stop_reason = extract_answer(text), "answer"
                break
            if not text:
                stop_reason = "empty_generation"
                break
            # 3. Its documents are added to those before.
            hits = await look_up(text, path, tools, config)
            earlier_ids = {hit.passage.id for earlier in searches for hit in earlier}
            searches.append([hit for hit in hits if hit.passage.id not in earlier_ids])
            hops.append(IterDRAGHop(text, tuple(hit.passage.id for hit in searches[-1])))
            lines.append(f"{FOLLOW_UP} {text}")
            # 4. Its intermediate answer; a line that already begins the next step is none.
            with tools.reserve(prompt(FINAL), most):
                line = await write_line(prompt(INTERMEDIATE), "intermediate", tools, config, path=path)
            sub_answer = "" if _opening(line) else _without(INTERMEDIATE, line)
            hops[-1] = replace(hops[-1], answer=sub_answer)
            lines.append(f"{INTERMEDIATE} {sub_answer}".strip())
        # 5. After the last sub-query the final answer is forced.
        answer = answer or await force_answer(prompt(FINAL), config.max_answer_tokens, tools)
    except BudgetExhaustedError:
        stop_reason = "budget"
        with suppress(BudgetExhaustedError):
            answer = await force_answer(prompt(FINAL), config.max_answer_tokens, tools)
        answer = answer or next((hop.answer for hop in reversed(hops) if hop.answer), "")
    # Interleaved, so that the first few show every search.
    passage_ids = tuple(hit.passage.id for hit in interleave(searches))
    return IterDRAGAnswer(answer, passage_ids, len(hops), stop_reason or "max_iterations", tuple(hops))


async def next_line(
    prompt: Callable[[str], Prompt], tools: Tools, config: IterDRAGConfig, *, path: str
) -> tuple[str, str]:
    """Return how the next line begins and goes on: a sub-query, or the final answer ("" if unwritten)."""
    line = await write_line(prompt(""), "step", tools, config, path=path)
    if opening := _opening(line):
        return opening, _without(opening, line)
    ask, answer = [
        await tools.score(prompt(""), opening.split()[0], role="opening", path=path)
        for opening in (FOLLOW_UP, FINAL)
    ]
    # Their first words differ, so no more is scored. Greedy decoding would decide at the first token in which
    # they part.
    tokens = zip(ask.token_ids, answer.token_ids, strict=False)
    parting = next(
        (position for position, (ask_id, answer_id) in enumerate(tokens) if ask_id != answer_id), 0
    )
    if answer.token_logprobs[parting] > ask.token_logprobs[parting]:
        return FINAL, ""
    sub_query = await write_line(prompt(FOLLOW_UP), "follow_up", tools, config, path=path)
    return FOLLOW_UP, _without(FOLLOW_UP, sub_query)


async def write_line(prompt: Prompt, role: str, tools: Tools, config: IterDRAGConfig, *, path: str) -> str:
    """Let the model write on and return the first line with words: the rest is not its turn."""
    stop = (f"\n{INTERMEDIATE}",)  # not the other openings, before which some models begin a line
    reply = await tools.generate(prompt, role=role, max_tokens=config.max_step_tokens, stop=stop, path=path)
    lines = (line.strip("*_ \t") for line in reply.text.splitlines())
    return next(filter(None, lines), "")


def _opening(line: str) -> str:
    """Return which of the two openings between which a model decides a line has, "" if none."""
    return next(
        (opening for opening in (FOLLOW_UP, FINAL) if line.casefold().startswith(opening.casefold())), ""
    )


def _without(opening: str, line: str) -> str:
    """Return a line without its opening, which some models write again after it was written for them."""
    begins = line.casefold().startswith(opening.casefold())
    return line[len(opening) :].strip("*_ \t") if begins else line


METHOD = Method(
    iterdrag,
    IterDRAGConfig,
    "DRAG with sub-queries whose documents stay in the prompt (IterDRAG: Yue et al. 2024)",
    published="2024-10",
)
