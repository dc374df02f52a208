"""ReAct's options and presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from baselines.transcripts import TranscriptConfig
from core.errors import ConfigError


@dataclass(frozen=True)
class ReActConfig(TranscriptConfig):
    """Options of ReAct, with those of its transcript (fields {query}, {hops}, {cue} and {demonstrations}).

    In the prompt's passage, {place} is its number among all that were found. The released code has its
    examples under webthink_simple6 in prompts_naive.json: make that text a file for ``demonstrations``.

    Attributes:
        max_steps: thoughts, each with its action, at most.
        k: passages that a search returns (also ``top_k``).
        shown_sentences: sentences of each passage that a search shows, the rest being left to lookups; 0
            shows all.
        lookup_sentences: sentences that a lookup shows; the same lookup again shows the next ones.
        unparsable: a reply without an action is the "answer"; or "ask_again", for the action alone.
        force_answer: ask for the answer if no step gave one. A spent budget is always answered so.
        max_step_tokens: most tokens of a thought and its action.
        max_answer_tokens: most tokens of a forced answer.
    """

    demonstration_count: int = 6
    max_steps: int = 7
    k: int = 5
    shown_sentences: int = 5
    lookup_sentences: int = 5
    unparsable: Literal["answer", "ask_again"] = "answer"
    force_answer: bool = True
    max_step_tokens: int = 200
    max_answer_tokens: int = 64

    NAME: ClassVar[str] = "react"
    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {
            "k": 1, "lookup_sentences": 1, "unparsable": "ask_again", "force_answer": False, "max_step_tokens": 100,
        },
        "zero_shot": {},
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.max_steps, self.k, self.lookup_sentences) < 1 or self.shown_sentences < 0:
            raise ConfigError(
                "react needs max_steps, k and lookup_sentences of at least 1 and shown_sentences of at "
                f"least 0, but they are {self.max_steps}, {self.k}, {self.lookup_sentences} and "
                f"{self.shown_sentences}."
            )
