"""OneR: retrieve once with the question, then read.

The one-step baseline of IRCoT (Trivedi et al., ACL 2023, arXiv 2212.10509, section 4.2). It collects under
IRCoT's rules, so that a comparison with IRCoT is about the number of steps and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.core.language.text import question_words_note, strip_question_words
from corag.core.method import Method
from corag.core.passage_pool import PassagePool
from corag.core.reader import READER_FOR_DOCUMENTS, ReaderConfig, read_once
from corag.core.tools import Tools
from corag.core.types import Answer, Question


@dataclass(frozen=True)
class OneStepConfig(ReaderConfig, section="one_step"):
    """Options of one-step retrieval."""

    reader: Literal["direct", "cot", "none"] = "direct"
    """"direct" generates the answer alone, "cot" a chain of thought that ends in it; "none" leaves the answer
    empty, to measure recall."""

    k: Annotated[int, Ge(1)] = 15  # what IRCoT may collect at most, so that both readers see as much
    """passages retrieved (also ``top_k``). IRCoT's paper tunes it in {5, 7, 9, 11, 13, 15}."""

    strip_question_words: bool = True
    """drop who, what, is, ... from the query, as IRCoT's paper does for BM25."""

    max_collected_words: Annotated[int, Ge(1)] = 600
    """longer passages are not collected (IRCoT's released code: 600)."""

    FOR_DOCUMENTS: ClassVar[dict[str, Any]] = READER_FOR_DOCUMENTS
    ALIASES: ClassVar[dict[str, str]] = ReaderConfig.ALIASES | {
        "top_k": "k",
        "max_passage_words": "max_collected_words",
    }


async def one_step(question: Question, tools: Tools, config: OneStepConfig) -> Answer:
    """Retrieve k passages with the whole question and read them; a small token budget leaves some out.

    ``stopped``: as of :func:`read_once`, or "searched" without a reader, which is how recall is measured
    (IRCoT's released code: ``oner``).
    """
    pool = PassagePool(config.k, max_words=config.max_collected_words)
    query, note = question.text, ""
    if config.strip_question_words:
        query, note = strip_question_words(query), question_words_note(query)
    pool.add(await tools.search(query, k=config.k, note=note))
    if config.reader == "none":
        return Answer("", pool.ids, stopped="searched")
    return await read_once(question, pool.passages, tools, config)


METHOD = Method(
    one_step,
    OneStepConfig,
    "retrieve once with the question, then read (OneR)",
    # What tutorials and FlashRAG call retrieving once.
    also_called=("basic_rag", "naive_rag", "vanilla", "vanilla_rag", "oner"),
)
