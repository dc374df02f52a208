"""OneR: retrieve once with the question, then read.

The one-step baseline of IRCoT (Trivedi et al., ACL 2023, arXiv 2212.10509, section 4.2). It collects under
IRCoT's rules, so that a comparison with IRCoT is about the number of steps and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from core.errors import ConfigError
from core.passage_pool import PassagePool
from core.reader import ReaderConfig, read_once
from core.text import strip_question_words
from core.tools import Tools
from core.types import Answer, Question


@dataclass(frozen=True)
class OneStepConfig(ReaderConfig):
    """Options of one-step retrieval.

    Attributes:
        k: passages retrieved (also ``top_k``). IRCoT's paper tunes it in {5, 7, 9, 11, 13, 15}.
        strip_question_words: drop who, what, is, ... from the query, as IRCoT's paper does for BM25.
        max_collected_words: longer passages are not collected (IRCoT's released code: 600).
        near_duplicate: passages this similar (percent, title and text) to a kept one are not collected.
    """

    k: int = 15  # what IRCoT may collect at most, so that both readers see as much
    strip_question_words: bool = True
    max_collected_words: int = 600
    near_duplicate: float = 90.0  # IRCoT's released code, by rapidfuzz

    # What tutorials and FlashRAG call retrieving once.
    ALSO_CALLED: ClassVar[tuple[str, ...]] = ("basic_rag", "naive_rag", "vanilla", "vanilla_rag", "oner")
    ALIASES: ClassVar[dict[str, str]] = ReaderConfig.ALIASES | {
        "top_k": "k",
        "max_passage_words": "max_collected_words",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1 or self.reader == "none":
            raise ConfigError(
                f"one_step needs k >= 1 and a reader, but k is {self.k} and reader is '{self.reader}'."
            )


async def one_step(question: Question, tools: Tools, config: OneStepConfig) -> Answer:
    """Retrieve k passages with the whole question and read them; a small token budget leaves some out."""
    pool = PassagePool(config.k, max_words=config.max_collected_words, near_duplicate=config.near_duplicate)
    query = strip_question_words(question.text) if config.strip_question_words else question.text
    pool.add(await tools.search(query, k=config.k))
    return await read_once(question, pool.passages, tools, config)
