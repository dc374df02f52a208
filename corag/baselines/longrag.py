"""LongRAG (Jiang, Ma, Chen: LongRAG: Enhancing Retrieval-Augmented Generation with Long-context LLMs, 2024).

arXiv 2406.15319. Retrieve few long units, each many related passages, and read them in two turns: a long
answer from everything, then a short answer out of the long one, by examples. As in the paper a unit is worth
its best piece: passages are searched, with any index, and their units, made by ``corag index --long_units``,
are read. Preset "paper" is the default; "small_window" reads half as much and writes a fifth.

Differences, and why:

- Titles are above their passages, not in a list before all of them.
- The second turn's examples are our own: the released ones are questions of the benchmarks.
- A failure fails the question; the released code takes it for an empty answer, which hides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.shared import PROMPTS
from corag.core.errors import BudgetExhaustedError, ConfigError
from corag.core.language.text import extract_answer
from corag.core.method import Method, MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.render import render_passages
from corag.core.prompting.shorten import texts_left
from corag.core.prompting.template import Template, load_template
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Question
from corag.core.units import Unit, load_units


@dataclass(frozen=True)
class LongRAGConfig(MethodConfig, section="longrag"):
    """Options of LongRAG."""

    preset: Literal["paper", "small_window"] = "paper"
    """values for the other options: "paper", or "small_window" (16,000 tokens): 4 units, long answers of 200
    tokens."""

    units: NameOrPath = ""
    """file of units, as 'corag index --long_units FILE' makes it of the index that is searched;
    "" takes the passages found that share a title for a unit, which is short where passages are whole
    documents."""

    k: Annotated[int, Ge(1)] = 8
    """units that are read (paper: 4 to 8; also ``top_k``)."""

    depth: Annotated[int, Ge(1)] = 200  # many pieces fall into one unit, so few units need many pieces
    """passages searched to find them (paper: 200)."""

    max_long_answer_tokens: Annotated[int, Ge(1)] = 1000
    """most tokens of the long answer."""

    max_answer_tokens: Annotated[int, Ge(1)] = 64
    """most tokens of the short answer."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small_window": {"k": 4, "max_long_answer_tokens": 200},
    }

    def templates(self) -> tuple[Template, ...]:
        """The prompts of the first and the second turn."""
        return (load_template("longrag_read", PROMPTS), load_template("longrag_extract", PROMPTS))

    def files(self) -> Mapping[str, str]:
        """The file of units."""
        return {self.units: self.units} if self.units else {}

    def check_files(self) -> None:
        """Load prompts and units."""
        super().check_files()
        if self.units:
            load_units(self.units)


@dataclass(frozen=True, slots=True)
class LongRAGAnswer(Answer):
    """LongRAG's result.

    ``stopped``: "read", "empty_generation" (no long answer, so no second turn) or "budget". ``steps``: turns.
    ``passage_ids``: all that the units hold, what the search found of it first.
    ``unit_ids``: best first. ``passages_read``: how many passages budget and window left in the prompt.
    """

    long_answer: str = ""
    unit_ids: tuple[str, ...] = ()
    passages_read: int = 0


async def longrag(question: Question, tools: Tools, config: LongRAGConfig) -> LongRAGAnswer:
    """Answer one question with LongRAG (paper, section 2)."""
    # 1. The long retriever (section 2.1): the units of the best passages.
    hits = await tools.search(question.text, k=config.depth)
    units = best_units(hits, config)
    members = [identifier for unit in units for identifier in unit.passage_ids]
    passages = await tools.passages(members) if members else ()

    # 2. The long reader (section 2.2), first turn: a long answer from the units. If they are too long,
    #    passages go, from the end of the worst unit on.
    template, _ = config.templates()
    prompt = template.render(
        {"query": question.text, "passages": render_passages(passages, template, goes_first="last")}
    )
    long_answer, answer, stop_reason, steps, in_view = "", "", "read", 0, 0
    try:
        # The second turn reads the long answer and writes the short one.
        most = config.max_long_answer_tokens + config.max_answer_tokens
        with tools.reserve(extraction(question, "", config), most):
            prompt = tools.afford(prompt, config.max_long_answer_tokens)
            reply = await tools.generate(prompt, role="long_answer", max_tokens=config.max_long_answer_tokens)
        long_answer, steps = reply.text.strip(), 1
        in_view = len(texts_left(prompt, "passage", reply.shortening))

        # 3. Second turn: a short answer out of the long one.
        if long_answer:
            short = extraction(question, long_answer, config)
            reply = await tools.generate(short, role="short_answer", max_tokens=config.max_answer_tokens)
            answer, steps = extract_answer(reply.text), 2
        else:
            stop_reason = "empty_generation"
    except BudgetExhaustedError:
        stop_reason, answer = "budget", extract_answer(long_answer)
    # What the search found stands first, in its order, for recall at k; a unit's other passages follow.
    ids = {passage.id for passage in passages}
    unit_ids = [hit.passage.id for hit in hits if hit.passage.id in ids]
    pool = tuple(dict.fromkeys([*unit_ids, *(passage.id for passage in passages)]))
    return LongRAGAnswer(
        answer, pool, steps, stop_reason, long_answer, tuple(unit.id for unit in units), in_view
    )


def best_units(hits: Sequence[Hit], config: LongRAGConfig) -> list[Unit]:
    """Return the units of the best passages; a unit is worth its best piece (paper, section 2.1)."""
    if config.units:
        units = load_units(config.units)
        # To pass over such a hit would make the search look worse than it is.
        if missing := [hit.passage.id for hit in hits if hit.passage.id not in units]:
            raise ConfigError(
                f"the passage '{missing[0]}' is in no unit of '{config.units}': make units of the index "
                "that is searched (corag index --long_units FILE)."
            )
        ranked_units = [units[hit.passage.id] for hit in hits]
    else:
        titles: dict[str, list[str]] = {}
        for hit in hits:
            titles.setdefault(hit.passage.title or hit.passage.id, []).append(hit.passage.id)
        ranked_units = [Unit(title, tuple(ids)) for title, ids in titles.items()]
    return list({unit.id: unit for unit in ranked_units}.values())[: config.k]


def extraction(question: Question, long_answer: str, config: LongRAGConfig) -> Prompt:
    """Ask for the short answer."""
    _, template = config.templates()
    return template.render({"query": question.text, "long_answer": long_answer})


METHOD = Method(
    longrag,
    LongRAGConfig,
    "few long units of related passages, read in two turns (LongRAG: Jiang et al. 2024)",
    published="2024-06",
)
