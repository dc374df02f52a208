"""DRAG (Yue et al.: Inference Scaling for Long-Context Retrieval Augmented Generation, 2024, arXiv
2410.04343, section 3.2).

One prompt of m demonstrations, each with documents of its own, k documents and the question. No code was
released. Defaults are the paper's but for k and m: it reports the best pair under each budget, an oracle over
settings. Differences: the budget (``--budget``) counts generated tokens too, and a prompt beyond it loses
whole demonstrations, then the worst documents; demonstrations are a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from core.errors import BudgetExhaustedError, ConfigError
from core.gather import gather
from core.prompting.demonstrations import (
    DEFAULT,
    Demonstration,
    DemonstrationConfig,
    demonstration_file,
    read_demonstrations,
)
from core.prompting.prompt import Prompt, Segment
from core.prompting.render import passage_items, render_demonstrations
from core.prompting.shorten import affordable, count_segments
from core.prompting.template import Template, load_prompt
from core.reader import generate_answer
from core.text import extract_answer
from core.tools import Tools
from core.types import Answer, Hit, Question


@dataclass(frozen=True)
class DRAGConfig(DemonstrationConfig):
    """Options of DRAG.

    Attributes:
        documents: documents per search (the paper's k, of 0 to 1000; also ``top_k``); 0 for no search.
        demonstrations: file of worked examples in IRCoT's format, or in the form that iterdrag writes,
            "default" for the shipped four, or "" for none.
        demonstration_count: use the first so many (the paper's m, of 0 to 256); 0 for none.
        demonstration_documents: show each with what a search for its question finds now ("retrieved", the
            paper), or with the paragraphs that stand in the "file". The shipped ones always show their own,
            which few corpora hold.
        document_order: "best_last" puts the best document next to the question (the paper), "best_first" at
            the top.
        max_shown_words: documents are cut to so many words.
        max_answer_tokens: most tokens of the answer.
        prompt: a shipped name, a file, or a text with {demonstrations}, {passages} and {query}.
    """

    documents: int = 20
    demonstration_count: int = 4
    demonstration_documents: Literal["retrieved", "file"] = "retrieved"
    document_order: Literal["best_last", "best_first"] = "best_last"
    max_shown_words: int = 1024
    max_answer_tokens: int = 64
    prompt: str = "drag"

    SHIPPED: ClassVar[str] = "drag"
    ALIASES: ClassVar[dict[str, str]] = {
        "top_k": "documents", "k": "documents", "m": "demonstration_count", "max_document_words": "max_shown_words",
    }  # fmt: skip

    def __post_init__(self) -> None:
        if (
            min(self.max_shown_words, self.max_answer_tokens) < 1
            or min(self.documents, self.demonstration_count) < 0
        ):
            raise ConfigError(
                f"{self.SHIPPED}'s demonstration_count and documents must be at least 0, its other numbers "
                "at least 1."
            )

    def template(self) -> Template:
        """Load the prompt."""
        return load_prompt(self.prompt, self.SHIPPED, Path(__file__).parent / "prompts")

    def templates(self) -> tuple[Template, ...]:
        """The one prompt."""
        return (self.template(),)

    def examples(self) -> tuple[Demonstration, ...]:
        """Load the demonstrations, each with the answer that it is to show."""
        return self.chosen(direct=True)

    def chosen(self, *, direct: bool) -> tuple[Demonstration, ...]:
        """Load the first m demonstrations, or those that are named; m = 0 is the paper's: none."""
        ids = tuple(self.demonstration_ids)
        file = demonstration_file(self.demonstrations, self.EXAMPLES) if self.demonstration_count or ids else ""
        return read_demonstrations(file, self.demonstration_count, ids, direct=direct)


@dataclass(frozen=True, slots=True)
class DRAGAnswer(Answer):
    """``stopped``: "read" or "budget".

    ``documents``, ``demonstrations``: how many budget and window left in the prompt.
    """

    documents: int = 0
    demonstrations: int = 0


async def drag(question: Question, tools: Tools, config: DRAGConfig) -> DRAGAnswer:
    """Answer one question with DRAG: retrieve once, show demonstrations and documents, best last, and read
    the answer.
    """
    hits = await look_up(question.text, "question", tools, config)
    prompt = fill(question.text, await demonstrate(tools, config), [hits], config)
    prompt = affordable(prompt, config.max_answer_tokens, tools)
    found = tuple(hit.passage.id for hit in hits)
    try:
        reply = await generate_answer(prompt, config.max_answer_tokens, tools)
    except BudgetExhaustedError:
        return DRAGAnswer("", found, stopped="budget")
    documents, demonstrations = (
        count_segments(prompt, kind) - reply.shortening.count(kind) for kind in ("passage", "demonstration")
    )
    return DRAGAnswer(extract_answer(reply.text), found, 1, "read", documents, demonstrations)


async def look_up(query: str, path: str, tools: Tools, config: DRAGConfig) -> Sequence[Hit]:
    """Search; for no documents not at all."""
    return await tools.search(query, k=config.documents, path=path) if config.documents else ()


async def demonstrate(tools: Tools, config: DRAGConfig) -> list[Segment]:
    """Write the demonstrations, each with documents of its own."""
    template, examples = config.template(), config.examples()
    if config.demonstration_documents == "retrieved" and config.demonstrations != DEFAULT:
        found = await gather(
            look_up(example.question, f"demonstration {number}", tools, config)
            for number, example in enumerate(examples, 1)
        )
        written = ("".join(part.text for part in write_documents([hits], template, config)) for hits in found)
        examples = tuple(
            replace(example, context=text) for example, text in zip(examples, written, strict=True)
        )
    return render_demonstrations(examples, template)


def write_documents(
    searches: Sequence[Sequence[Hit]], template: Template, config: DRAGConfig
) -> list[Segment]:
    """Write the hits of searches, the oldest search first.

    If a prompt is too long, the worst of every search go first.

    Without any search, nothing is said of documents; a search that found none is another matter.
    """
    if not config.documents:
        return []
    ranked = [
        (rank, search, hit.passage) for search, hits in enumerate(searches) for rank, hit in enumerate(hits)
    ]
    if config.document_order == "best_last":
        ranked.sort(key=lambda entry: (entry[1], -entry[0]))
    items = passage_items((passage for *_, passage in ranked), config.max_shown_words)
    places = [(config.documents - rank) * len(searches) + search for rank, search, _ in ranked]
    return template.items("passage", items, places)


def fill(
    query: str,
    shown: Sequence[Segment],
    searches: Sequence[Sequence[Hit]],
    config: DRAGConfig,
    transcript: str = "",
) -> Prompt:
    """Fill the prompt: the demonstrations to be ``shown``, documents, question, and what has been written so
    far.
    """
    passages = write_documents(searches, config.template(), config)
    return config.template().render(
        {"demonstrations": shown, "passages": passages, "query": query, "transcript": transcript}
    )
