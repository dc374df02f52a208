"""Prompted Self-RAG's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from baselines.self_rag_critique import PROMPTS, CritiqueConfig
from core.errors import ConfigError
from core.prompting.template import Template, load_prompt

Verdict = Literal["retrieve", "relevance", "support", "utility"]


@dataclass(frozen=True)
class SelfRAGPromptedConfig(CritiqueConfig):
    """Options of prompted Self-RAG, beside those that the method with reflection tokens has too.

    Attributes:
        retrieval: "adaptive" asks the model before each sentence whether to search, "always" does not ask.
        max_segments: most sentences of the answer.
        max_segment_tokens: most tokens generated for one.
        force_answer: ask for the answer if no sentence states one. A spent budget is always answered so.
        max_answer_tokens: most tokens of a forced answer.
        retrieve_prompt: a shipped name, a file, or a text with {query} and {written}.
        relevance_prompt: the same with {passages}, {query} and {written}.
        segment_prompt: the same with {passages}, {query} and {written}.
        support_prompt: the same with {passages} and {sentence}.
        utility_prompt: the same with {query} and {written}.
    """

    retrieval: Literal["adaptive", "always"] = "adaptive"
    max_segments: int = 6
    max_segment_tokens: int = 100
    force_answer: bool = True
    max_answer_tokens: int = 64
    retrieve_prompt: str = "self_rag_retrieve"
    relevance_prompt: str = "self_rag_relevance"
    segment_prompt: str = "self_rag_segment"
    support_prompt: str = "self_rag_support"
    utility_prompt: str = "self_rag_utility"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.max_segments, self.max_segment_tokens, self.max_answer_tokens) < 1:
            raise ConfigError(
                "self_rag_prompted needs max_segments, max_segment_tokens and max_answer_tokens of at least "
                f"1, but they are {self.max_segments}, {self.max_segment_tokens} and "
                f"{self.max_answer_tokens}."
            )

    def prompt(self, name: Verdict | Literal["segment"]) -> Template:
        """Load one of the prompts; what it does not say about writing passages is as in the shipped one."""
        return load_prompt(getattr(self, f"{name}_prompt"), f"self_rag_{name}", PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that these options use."""
        weighed: dict[Verdict, float] = {
            "relevance": self.w_rel,
            "support": self.w_sup,
            "utility": self.w_use,
        }
        asked = [self.prompt(name) for name, weight in weighed.items() if weight]
        first = [self.prompt("retrieve")] if self.retrieval == "adaptive" else []
        return (*first, self.prompt("segment"), *asked)
