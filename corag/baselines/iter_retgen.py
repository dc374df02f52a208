"""ITER-RETGEN (Shao et al.: Enhancing Retrieval-Augmented LLMs with Iterative Retrieval-Generation Synergy).

Findings of EMNLP 2023, arXiv 2305.15294. Generate a whole chain of thought, search with it and the question
together, generate afresh from what was found, and so on; the last generation holds the answer. Nothing is
collected over the rounds: a generation sees the passages of its own round only. Preset "paper": three
demonstrations with chains of thought, five passages, two iterations.

Differences, and why:

- No code was released, so the wording and layout of prompts are IRCoT's (``layout`` with demonstrations,
  ``chat_cot`` without), and passages are cut to ``max_shown_words``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.shared import check_few_shot
from corag.core.errors import BudgetExhaustedError, ConfigError
from corag.core.method import Method
from corag.core.prompting.shorten import texts_left
from corag.core.reader import ReaderConfig, generate_answer, reader_prompt
from corag.core.tools import Tools
from corag.core.types import Question, ReadAnswer


@dataclass(frozen=True)
class IterRetGenConfig(ReaderConfig, section="iter_retgen"):
    """Options of ITER-RETGEN, beside those of the reader that writes each generation."""

    preset: Literal["paper", "zero_shot"] = "zero_shot"
    """"paper" (few-shot: give ``demonstrations``, the first three are used) or "zero_shot" (chat models)."""

    iterations: Annotated[int, Ge(1)] = 2
    """rounds of search and generation (the paper's T, up to 7; 2 is what it recommends)."""

    k: Annotated[int, Ge(1)] = 5
    """passages of each round, which are all that its generation sees (also ``top_k``)."""

    reader: Literal["direct", "cot", "none"] = "cot"
    """"cot" as in the paper; "direct" makes the generations bare answers, from which searches gain little."""

    demonstration_count: Annotated[int, Ge(0)] = 3  # paper: 3-shot, where IRCoT has 15
    """use the first so many demonstrations; 0 for all."""

    ALIASES: ClassVar[dict[str, str]] = ReaderConfig.ALIASES | {
        "top_k": "k", "T": "iterations", "max_iterations": "iterations",
    }  # fmt: skip
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "zero_shot": {}}

    def __post_init__(self) -> None:
        if self.reader == "none":
            raise ConfigError("iter_retgen needs a reader: set reader to 'direct' or 'cot'.")
        check_few_shot(self.SECTION, self.preset, self.demonstrations, self.qa_prompt)


@dataclass(frozen=True, slots=True)
class Round:
    """One iteration: the query, what it found (best first), and what was generated from that."""

    query: str
    passage_ids: tuple[str, ...]
    generation: str
    answer: str


@dataclass(frozen=True, slots=True)
class IterRetGenAnswer(ReadAnswer):
    """ITER-RETGEN's result.

    ``steps``: rounds that were finished. ``stopped``: "iterations" or "budget".
    ``context_ids``: what the last round found, as far as its prompt showed it.
    """

    rounds: tuple[Round, ...] = ()


async def iter_retgen(question: Question, tools: Tools, config: IterRetGenConfig) -> IterRetGenAnswer:
    """Answer one question with ITER-RETGEN (paper, section 3)."""
    rounds: list[Round] = []
    passage_ids: dict[str, None] = {}
    shown: tuple[str, ...] = ()
    stop_reason = "iterations"
    try:
        while len(rounds) < config.iterations:
            path = f"round {len(rounds) + 1}"
            # 1. Generation-augmented retrieval (section 3.2): y_(t-1) || q, and q alone at first.
            generation = rounds[-1].generation if rounds else ""
            query = " ".join(f"{generation} {question.text}".split()) if generation else question.text
            hits = await tools.search(query, k=config.k, path=path)
            passages = [hit.passage for hit in hits]
            passage_ids |= dict.fromkeys(passage.id for passage in passages)

            # 2. Retrieval-augmented generation (section 3.3): y_t from this round's passages and q. Earlier
            #    text is not shown, so that an early mistake reaches the model through the query only.
            #    Passages stand best first, so a prompt that is too long loses the last.
            prompt = reader_prompt(question, passages, config, goes_first="last")
            role = "reader" if len(rounds) + 1 == config.iterations else "generation"
            reply = await generate_answer(prompt, config.max_answer_tokens, tools, role=role, path=path)
            ids = tuple(passage.id for passage in passages)
            shown = ids[: len(texts_left(prompt, "passage", reply.shortening))]
            rounds.append(Round(query, ids, reply.text, config.qa_template().read_answer(reply.text)))
    except BudgetExhaustedError:
        stop_reason = "budget"
    # Each round ends in an answer, so a spent budget needs no forced one.
    answer = rounds[-1].answer if rounds else ""
    return IterRetGenAnswer(answer, tuple(passage_ids), len(rounds), stop_reason, shown, tuple(rounds))


METHOD = Method(
    iter_retgen,
    IterRetGenConfig,
    "search again with the last chain of thought and the question (ITER-RETGEN: Shao et al. 2023)",
    published="2023-05",
)
