"""Auto-RAG's options and presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from baselines.transcripts import PROMPTS
from core.errors import ConfigError
from core.method import MethodConfig
from core.prompting.template import Template, load_prompt


@dataclass(frozen=True)
class AutoRAGConfig(MethodConfig):
    """Options of Auto-RAG; the defaults are the released code's numbers.

    Attributes:
        preset: values for the other options: "paper", or "released_code", which does not ask for an answer
            after the last round.
        max_rounds: searches at most.
        max_recalls: documents that the model writes at most, once the searches are used up.
        documents_per_round: new documents shown per search at most (also ``top_k``).
        search_depth: hits among which new ones are looked for, so that a repeated query goes on down its
            list.
        force_answer: ask for the answer if no turn states one. A spent budget is always answered so.
        max_turn_tokens: most tokens of a turn, and of a document that the model writes (released code: 150
            after the last search).
        max_answer_tokens: most tokens of a forced answer.
        start_prompt: a shipped name, a file, or a text with {query}; the authors' checkpoint wants its own.
        documents_prompt: the same with {number} and {passages}.
        recall_prompt: the same with {query} and {sub_query}.
    """

    preset: Literal["paper", "released_code"] = "paper"
    max_rounds: int = 10
    max_recalls: int = 5
    documents_per_round: int = 2
    search_depth: int = 10
    force_answer: bool = True
    max_turn_tokens: int = 200
    max_answer_tokens: int = 64
    start_prompt: str = "auto_rag_start"
    documents_prompt: str = "auto_rag_documents"
    recall_prompt: str = "auto_rag_recall"

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "documents_per_round"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "released_code": {"force_answer": False}}

    def __post_init__(self) -> None:
        if min(self.max_rounds, self.documents_per_round, self.search_depth) < 1 or self.max_recalls < 0:
            raise ConfigError(
                "auto_rag's max_recalls must be at least 0, its other numbers of rounds and documents 1."
            )

    def prompt(self, name: str) -> Template:
        """Load one of the prompts: start, documents or recall."""
        return load_prompt(getattr(self, f"{name}_prompt"), f"auto_rag_{name}", PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that Auto-RAG may use."""
        return tuple(map(self.prompt, ("start", "documents", "recall")))
