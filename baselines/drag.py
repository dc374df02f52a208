"""DRAG (Yue et al.: Inference Scaling for Long-Context Retrieval Augmented Generation, 2024, arXiv 2410.04343, section 3.2).

One prompt of m demonstrations, each with documents of its own, k documents and the question. No code was released. Defaults are the
paper's but for k and m: it reports the best pair under each budget, an oracle over settings. Differences: the budget (``--budget``)
counts generated tokens too, and a prompt beyond it loses whole demonstrations, then the worst documents; demonstrations are a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from core.collected import clip_words
from core.demonstrations import Demonstration, read_demonstrations
from core.errors import BudgetExhaustedError, ConfigError
from core.fitting import affordable, count_segments
from core.method import MethodConfig
from core.prompt import Prompt, Segment
from core.templates import Template, load_prompt
from core.text import extract_answer
from core.together import together
from core.tools import Tools
from core.types import Answer, Hit, Question

_AFTER_DEMONSTRATIONS = 1_000_000  # a document's drop rank: every demonstration goes before it


@dataclass(frozen=True)
class DRAGConfig(MethodConfig):
    """Options of DRAG.

    Attributes:
        documents: documents per search (the paper's k, of 1 to 1000; also ``top_k``).
        demonstrations: file of worked examples in IRCoT's format, or in the form that iterdrag writes; "" for none.
        demonstration_count: use the first so many (the paper's m, of 0 to 256); 0 for all.
        demonstration_ids: use the demonstrations with these qids instead, in this order.
        demonstration_documents: show each with what a search for its question finds now ("retrieved", the paper), or with the
            paragraphs that stand in the "file".
        document_order: "best_last" puts the best document next to the question (the paper), "best_first" at the top.
        max_document_words: documents are cut to so many words.
        max_answer_tokens: most tokens of the answer.
        prompt: a shipped name, a file, or a text with {demonstrations}, {passages} and {query}.
    """

    documents: int = 20
    demonstrations: str = ""
    demonstration_count: int = 4
    demonstration_ids: list[str] = field(default_factory=list)
    demonstration_documents: Literal["retrieved", "file"] = "retrieved"
    document_order: Literal["best_last", "best_first"] = "best_last"
    max_document_words: int = 1024
    max_answer_tokens: int = 64
    prompt: str = "drag"

    SHIPPED: ClassVar[str] = "drag"
    ALIASES: ClassVar[dict[str, str]] = {"top_k": "documents", "k": "documents", "m": "demonstration_count"}

    def __post_init__(self) -> None:
        if min(self.documents, self.max_document_words, self.max_answer_tokens) < 1 or self.demonstration_count < 0:
            raise ConfigError(f"{self.SHIPPED}'s demonstration_count must be at least 0, its other numbers at least 1.")

    def template(self) -> Template:
        """Load the prompt."""
        return load_prompt(self.prompt, self.SHIPPED, Path(__file__).parent / "prompts")

    def templates(self) -> tuple[Template, ...]:
        """The one prompt."""
        return (self.template(),)

    def files(self) -> tuple[str, ...]:
        """The file of demonstrations."""
        return (self.demonstrations,) if self.demonstrations else ()

    def examples(self) -> tuple[Demonstration, ...]:
        """Load the demonstrations, each with the answer that it is to show."""
        chosen = read_demonstrations(self.demonstrations, self.demonstration_count, tuple(self.demonstration_ids))
        return tuple(demonstration.direct() for demonstration in chosen)

    def check_files(self) -> None:
        """Load prompt and demonstrations."""
        super().check_files()
        self.examples()


@dataclass(frozen=True, slots=True)
class DRAGAnswer(Answer):
    """``stopped``: "read" or "budget". ``documents``, ``demonstrations``: how many budget and window left in the prompt."""

    documents: int = 0
    demonstrations: int = 0


async def drag(question: Question, tools: Tools, config: DRAGConfig) -> DRAGAnswer:
    """Answer one question with DRAG: retrieve once, show demonstrations and documents, best last, and read the answer."""
    hits = await tools.search(question.text, k=config.documents, path="question")
    prompt = fill(question.text, await demonstrate(tools, config), [hits], config)
    prompt = affordable(prompt, config.max_answer_tokens, tools)
    found = tuple(hit.passage.id for hit in hits)
    stop = ("\n",) if prompt.plain else ()
    try:
        reply = await tools.generate(prompt, role="reader", max_tokens=config.max_answer_tokens, stop=stop)
    except BudgetExhaustedError:
        return DRAGAnswer("", found, stopped="budget")
    documents, demonstrations = (
        count_segments(prompt, kind) - reply.shortening.count(kind) for kind in ("passage", "demonstration")
    )
    return DRAGAnswer(extract_answer(reply.text), found, 1, "read", documents, demonstrations)


async def demonstrate(tools: Tools, config: DRAGConfig) -> list[Segment]:
    """Write the demonstrations, each with documents of its own. In a prompt that is too long the first go first."""
    template, examples = config.template(), config.examples()
    contexts = [example.context for example in examples]
    if config.demonstration_documents == "retrieved":
        searches = (
            tools.search(example.question, k=config.documents, path=f"demonstration {number}")
            for number, example in enumerate(examples, 1)
        )
        written = (write_documents([hits], template, config) for hits in await together(searches))
        contexts = ["".join(segment.text for segment in segments) for segments in written]
    items = [
        {"passages": context, "query": example.question, "answer": example.answer}
        for context, example in zip(contexts, examples, strict=True)
    ]
    return template.items("demonstration", items, range(len(items)))


def write_documents(searches: Sequence[Sequence[Hit]], template: Template, config: DRAGConfig) -> list[Segment]:
    """Write the hits of searches, the oldest search first. If a prompt is too long, the worst of every search go first."""
    ranked = [(rank, search, hit.passage) for search, hits in enumerate(searches) for rank, hit in enumerate(hits)]
    if config.document_order == "best_last":
        ranked.sort(key=lambda entry: (entry[1], -entry[0]))
    items = [{"title": p.title, "text": clip_words(p.text.strip(), config.max_document_words)} for *_, p in ranked]
    drops = [_AFTER_DEMONSTRATIONS + (config.documents - rank) * len(searches) + search for rank, search, _ in ranked]
    return template.items("passage", items, drops)


def fill(
    query: str, shown: Sequence[Segment], searches: Sequence[Sequence[Hit]], config: DRAGConfig, transcript: str = ""
) -> Prompt:
    """Fill the prompt: the demonstrations to be ``shown``, documents, question, and what has been written so far."""
    passages = write_documents(searches, config.template(), config)
    return config.template().render(
        {"demonstrations": shown, "passages": passages, "query": query, "transcript": transcript}
    )
