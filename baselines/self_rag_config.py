"""Self-RAG's options and presets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from baselines.self_rag_critique import PROMPTS, SUPPORT, UTILITY, CritiqueConfig
from core.errors import ConfigError
from core.prompting.prompt import Prompt
from core.prompting.render import clip_words
from core.prompting.template import Template, load_template
from core.types import Passage


@dataclass(frozen=True)
class SelfRAGConfig(CritiqueConfig):
    """Options of Self-RAG with reflection tokens, beside those that the prompted variant has too.

    Attributes:
        preset: "short_form" (one segment, ten passages, as for PopQA) or "long_form" (segment-level beam
            search, as for ASQA).
        retrieval: "adaptive" searches where the model wants it by ``threshold``; "always" and "never" do not
            ask it.
        threshold: search when P(retrieve) / (P(retrieve) + P(do not)) is above this.
        search_with: the "question" alone (released code), or the question and the newest "segment" (Algorithm
            1).
        max_segments: most segments (the paper's T); 1 is the short form.
        beam: paths kept after each segment.
        max_segment_tokens: most tokens of a segment.
        aggregate: the answer is the "best" path's, or, for questions that name their choices, the one whose
            paths have the highest score in "sum" (the released code's closed mode); that needs a single
            segment.
        prompt: a shipped name, a file, or a text with {query} and, at its end, {response}.
        retrieve_tokens: how the model writes that it wants passages, does not, and goes on with the same
            ones.
        relevance_tokens: relevant, irrelevant.
        support_tokens: fully, partially, not supported.
        utility_tokens: usefulness 1 to 5.
        passage_tokens: what stands before and after a passage.
    """

    preset: Literal["short_form", "long_form"] = "short_form"
    k: int = 10
    retrieval: Literal["adaptive", "always", "never"] = "adaptive"
    threshold: float = 0.2
    search_with: Literal["question", "segment"] = "question"
    max_segments: int = 1
    beam: int = 2
    max_segment_tokens: int = 100
    aggregate: Literal["best", "sum"] = "best"
    prompt: str = "self_rag"
    retrieve_tokens: list[str] = field(
        default_factory=lambda: ["[Retrieval]", "[No Retrieval]", "[Continue to Use Evidence]"]
    )
    relevance_tokens: list[str] = field(default_factory=lambda: ["[Relevant]", "[Irrelevant]"])
    support_tokens: list[str] = field(
        default_factory=lambda: ["[Fully supported]", "[Partially supported]", "[No support / Contradictory]"]
    )
    utility_tokens: list[str] = field(
        default_factory=lambda: [f"[Utility:{degree}]" for degree in range(1, 6)]
    )
    passage_tokens: list[str] = field(default_factory=lambda: ["<paragraph>", "</paragraph>"])

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "short_form": {},
        "long_form": {"k": 5, "max_segments": 6, "max_segment_tokens": 300, "beam": 2},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.max_segments, self.beam, self.max_segment_tokens) < 1 or not 0 <= self.threshold <= 1:
            raise ConfigError(
                "self_rag needs max_segments, beam and max_segment_tokens of at least 1 and a threshold "
                f"from 0 to 1, but they are {self.max_segments}, {self.beam}, {self.max_segment_tokens} and "
                f"{self.threshold}."
            )
        if self.aggregate == "sum" and self.max_segments > 1:
            raise ConfigError(
                "self_rag's aggregate 'sum' adds up the scores of equal short answers: set max_segments to "
                "1, or aggregate to 'best'."
            )
        wanted = {
            "retrieve": 3,
            "relevance": 2,
            "support": len(SUPPORT),
            "utility": len(UTILITY),
            "passage": 2,
        }
        for name, count in wanted.items():
            given = getattr(self, f"{name}_tokens")
            if len(given) != count or not all(given):
                raise ConfigError(f"self_rag's {name}_tokens must be {count} names, but they are {given}.")

    def prompt_at(self, query: str, response: str) -> Prompt:
        """Return the prompt that is to be continued after ``response``."""
        return self.templates()[0].render({"query": query, "response": response})

    def templates(self) -> tuple[Template, ...]:
        """The prompt."""
        return (load_template(self.prompt, PROMPTS),)

    def opening(self, passage: Passage | None) -> str:
        """Return what a segment stands behind: a passage, or the word that there is none."""
        if passage is None:
            return self.retrieve_tokens[1]
        before, after = self.passage_tokens
        text = clip_words(passage.text.strip(), self.max_shown_words)
        return f"{self.retrieve_tokens[0]}{before}{passage.title}\n{text}{after}"

    def spoken(self, text: str) -> str:
        """Return a text without reflection tokens."""
        groups = (self.retrieve_tokens, self.relevance_tokens, self.support_tokens, self.utility_tokens)
        for name in (name for group in (*groups, self.passage_tokens) for name in group):
            text = text.replace(name, " ")
        return " ".join(text.split())
