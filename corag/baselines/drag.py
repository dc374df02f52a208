"""DRAG (Yue et al.: Inference Scaling for Long-Context Retrieval Augmented Generation, 2024).

arXiv 2410.04343, section 3.2. One prompt of m demonstrations, each with documents of its own, k documents and
the question. No code was released. Defaults are the paper's but for k and m: it reports the best pair under
each budget, an oracle over settings, so there is no default to take over.

Differences, and why:

- The budget (``--budget``) counts generated tokens too, as everywhere here. A prompt beyond it loses
  whole demonstrations, then the worst documents.
- Demonstrations are a file; the paper has the model write them and keeps those with the right answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.shared import PROMPTS
from corag.core.errors import BudgetExhaustedError, ConfigError
from corag.core.gather import gather
from corag.core.language.text import extract_answer
from corag.core.method import Method
from corag.core.options.names import NameOrPath
from corag.core.prompting.demonstrations import (
    DEFAULT,
    Demonstration,
    DemonstrationConfig,
    bare_answers,
    demonstration_file,
    read_demonstrations,
)
from corag.core.prompting.prompt import Prompt, Segment
from corag.core.prompting.render import passage_items, render_demonstrations
from corag.core.prompting.shorten import texts_left
from corag.core.prompting.template import Template, load_prompt
from corag.core.reader import generate_answer
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Question


@dataclass(frozen=True)
class DRAGConfig(DemonstrationConfig, section="drag"):
    """Options of DRAG."""

    documents: Annotated[int, Ge(0)] = 20
    """documents per search (the paper's k, of 0 to 1000; also ``top_k``); 0 for no search."""

    demonstration_count: Annotated[int, Ge(0)] = 4  # ours: as many as are shipped
    """use the first so many (the paper's m, of 0 to 256); 0 for none."""

    demonstrations: NameOrPath = ""
    """file of worked examples in IRCoT's format, or in the form that iterdrag writes, "default" for the
    shipped four, or "" for none."""

    demonstration_documents: Literal["retrieved", "file"] = "retrieved"
    """show each with what a search for its question finds now ("retrieved", the paper), or with the
    paragraphs that stand in the "file". The shipped ones always show their own, which few corpora hold."""

    max_shown_words: Annotated[int, Ge(1)] = 1024  # paper: 1,024 tokens, split at white space
    """documents are cut to so many words."""

    max_answer_tokens: Annotated[int, Ge(1)] = 64
    """most tokens of the answer."""

    prompt: NameOrPath = "drag"
    """a shipped name, a file, or a text with {demonstrations}, {passages} and {query}."""

    ALIASES: ClassVar[dict[str, str]] = {
        "top_k": "documents",
        "k": "documents",
        "m": "demonstration_count",
        "max_document_words": "max_shown_words",
    }

    def few_shot_fields(self) -> tuple[str, ...]:
        """The field of demonstrations, unless m is 0."""
        return super().few_shot_fields() if self.demonstration_count or self.demonstration_ids else ()

    def template(self) -> Template:
        """Load the prompt."""
        template = load_prompt(self.prompt, self.SECTION, PROMPTS, needs=self.few_shot_fields())
        if template.whole:  # nor would the numbers be those of its passages, the best of which stands last
            raise ConfigError(f"{self.SECTION} reads a short answer: leave 'reply: whole' out of its prompt.")
        return template

    def templates(self) -> tuple[Template, ...]:
        """The one prompt."""
        return (self.template(),)

    def examples(self) -> tuple[Demonstration, ...]:
        """Load the demonstrations, each with the answer that it is to show."""
        return bare_answers(self.load_examples(), self.demonstrations)

    def load_examples(self) -> tuple[Demonstration, ...]:
        """Load the first m demonstrations, or those that are named; m = 0 is the paper's: none."""
        ids = tuple(self.demonstration_ids)
        if not (self.demonstration_count or ids):
            return ()
        file = demonstration_file(self.demonstrations, self.shipped_examples())
        return read_demonstrations(file, self.demonstration_count, ids)


@dataclass(frozen=True, slots=True)
class DRAGAnswer(Answer):
    """DRAG's result.

    ``stopped``: "read" or "budget". ``documents``, ``demonstrations``: how many budget and window left in the
    prompt.
    """

    documents: int = 0
    demonstrations: int = 0


async def drag(question: Question, tools: Tools, config: DRAGConfig) -> DRAGAnswer:
    """Answer one question with DRAG (paper, section 3.2)."""
    # 1. Retrieve once for the question, and for each demonstration's question.
    hits = await look_up(question.text, "question", tools, config)
    passage_ids = tuple(hit.passage.id for hit in hits)
    # 2. One prompt: demonstrations, documents with the best last, question.
    prompt = fill(question.text, await demonstrate(tools, config), [hits], config)
    prompt = tools.afford(prompt, config.max_answer_tokens)
    # 3. Read the answer.
    try:
        reply = await generate_answer(prompt, config.max_answer_tokens, tools)
    except BudgetExhaustedError:
        return DRAGAnswer("", passage_ids, stopped="budget")
    documents = len(texts_left(prompt, "passage", reply.shortening))
    demonstrations = len(texts_left(prompt, "demonstration", reply.shortening))
    return DRAGAnswer(extract_answer(reply.text), passage_ids, 1, "read", documents, demonstrations)


async def look_up(query: str, path: str, tools: Tools, config: DRAGConfig) -> Sequence[Hit]:
    """Search; for no documents not at all."""
    return await tools.search(query, k=config.documents, path=path) if config.documents else ()


async def demonstrate(tools: Tools, config: DRAGConfig) -> list[Segment]:
    """Write the demonstrations, each with documents of its own."""
    template, examples = config.template(), config.examples()
    # Searches by k documents for each demonstration are the same for all questions: a cache makes them free.
    if config.demonstration_documents == "retrieved" and config.demonstrations != DEFAULT:
        rankings = await gather(
            look_up(example.question, f"demonstration {number}", tools, config)
            for number, example in enumerate(examples, 1)
        )
        block = (
            "".join(part.text for part in render_documents([hits], template, config)) for hits in rankings
        )
        examples = tuple(
            replace(example, context=text) for example, text in zip(examples, block, strict=True)
        )
    return render_demonstrations(examples, template)


def render_documents(
    searches: Sequence[Sequence[Hit]], template: Template, config: DRAGConfig
) -> list[Segment]:
    """Write the hits of searches, the oldest first; a long prompt loses the worst of every search first."""
    # Without documents the prompt has no part for them; a search without hits has an empty one.
    if not config.documents:
        return []
    entries = [
        (rank, search, hit.passage) for search, hits in enumerate(searches) for rank, hit in enumerate(hits)
    ]
    entries.sort(key=lambda entry: (entry[1], -entry[0]))  # the best next to the question, as in the paper
    items = passage_items((passage for *_, passage in entries), config.max_shown_words)
    # The worst rank goes first; of equal ranks that of the oldest search, for the newest sub-query needs its
    # own.
    places = [(config.documents - rank) * len(searches) + search for rank, search, _ in entries]
    return template.items("passage", items, places)


def fill(
    query: str,
    demonstrations: Sequence[Segment],
    searches: Sequence[Sequence[Hit]],
    config: DRAGConfig,
    transcript: str = "",
) -> Prompt:
    """Fill the prompt: rendered demonstrations, documents, question, and what has been written so far."""
    passages = render_documents(searches, config.template(), config)
    return config.template().render(
        {"demonstrations": demonstrations, "passages": passages, "query": query, "transcript": transcript}
    )


METHOD = Method(
    drag,
    DRAGConfig,
    "many documents and demonstrations in one prompt, within a budget (DRAG: Yue et al. 2024)",
    published="2024-10",
)
