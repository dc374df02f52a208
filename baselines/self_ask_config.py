"""Self-Ask's options and presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from baselines.transcripts import PROMPTS, TranscriptConfig
from core.errors import ConfigError
from core.prompting.template import Template, load_prompt
from core.text import normalize_answer


@dataclass(frozen=True)
class SelfAskConfig(TranscriptConfig):
    """Options of Self-Ask, with those of its transcript (fields {query}, {transcript} and {demonstrations}).

    Attributes:
        max_follow_ups: follow-up questions at most; the paper sets no cap.
        k: passages that an intermediate answer is read from (also ``top_k``).
        max_shown_words: passages are cut to so many words in prompts.
        refusal: what the reader says when the passages do not tell; then the model answers by itself.
        max_turn_tokens: most tokens of a follow-up question, or of what the model writes in its place.
        max_intermediate_tokens: most tokens of an intermediate answer.
        max_answer_tokens: most tokens of the final answer, where the model has to be asked for it.
        reading_prompt: a shipped name, a file, or a text with {sub_query}, {passages} and {refusal}.
    """

    demonstration_count: int = 4
    max_follow_ups: int = 5
    k: int = 5
    max_shown_words: int = 350
    refusal: str = "No relevant information found"
    max_turn_tokens: int = 100
    max_intermediate_tokens: int = 64
    max_answer_tokens: int = 64
    reading_prompt: str = "self_ask_read"

    NAME: ClassVar[str] = "self_ask"
    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_passage_words": "max_shown_words"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"paper": {"max_turn_tokens": 256}, "zero_shot": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.max_follow_ups, self.k, self.max_shown_words) < 1:
            raise ConfigError(
                "self_ask needs max_follow_ups, k and max_shown_words of at least 1, but they are "
                f"{self.max_follow_ups}, {self.k} and {self.max_shown_words}."
            )
        if not normalize_answer(self.refusal):
            raise ConfigError("self_ask needs a refusal: what the reader says when the passages do not tell.")

    def reading_template(self) -> Template:
        """Load the reader's prompt."""
        return load_prompt(self.reading_prompt, "self_ask_read", PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """The transcript's prompt and the reader's."""
        return (*super().templates(), self.reading_template())
