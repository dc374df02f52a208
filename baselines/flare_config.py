"""FLARE's options and presets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from core.errors import ConfigError
from core.prompting.demonstrations import DemonstrationConfig
from core.prompting.render import load_layout
from core.prompting.template import Template, load_template

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class FLAREConfig(DemonstrationConfig):
    """Options of FLARE direct, and of demonstrations.

    Defaults are those of the released configuration for 2WikiMultihopQA.

    Attributes:
        preset: "paper" (few-shot: give ``demonstrations``, the first eight are used) or "zero_shot" (chat
            models).
        theta: a draft with a token of this probability or less is searched for; 0 never searches, 1 always.
            StrategyQA: 0.4.
        beta: tokens of this probability or less are masked in the query, or asked for; 0 searches with the
            whole draft.
        query: "masked" blanks these tokens out (implicit query); "questions" has the model ask for each span
            of them (explicit).
        draft_with: drafts see the newest "passages" (released code), or "nothing" but for the first one (the
            paper's text).
        k: passages of each search, which replace those before (also ``top_k``).
        look_ahead_tokens: most tokens of a draft, and of a sentence.
        max_tokens: most tokens of the whole answer.
        max_sentences: most sentences of it.
        force_answer: ask for the answer if no sentence states one (released code: not). A spent budget is
            always answered so.
        max_answer_tokens: most tokens of a forced answer.
        max_question_tokens: most tokens of an explicit query.
        prompt: "auto" (``layout`` with demonstrations, else ``flare``), a shipped name, a file, or a text with {query},
            {paragraphs} and {cot_history}.
        question_prompt: the same with {text} and {span}.
        max_shown_words: passages are cut to so many words in prompts.
    """

    preset: Literal["paper", "zero_shot"] = "zero_shot"
    theta: float = 0.8
    beta: float = 0.4
    query: Literal["masked", "questions"] = "masked"
    draft_with: Literal["passages", "nothing"] = "passages"
    k: int = 2
    look_ahead_tokens: int = 64
    max_tokens: int = 256
    max_sentences: int = 15
    force_answer: bool = True
    max_answer_tokens: int = 64
    max_question_tokens: int = 64
    prompt: str = "auto"
    question_prompt: str = "flare_question"
    demonstration_count: int = 8
    max_shown_words: int = 350

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_paragraph_words": "max_shown_words"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"theta": 0.8, "beta": 0.4, "k": 2, "force_answer": False},
        "zero_shot": {},
    }

    def __post_init__(self) -> None:
        least_one = (
            "k", "look_ahead_tokens", "max_tokens", "max_sentences", "max_answer_tokens", "max_question_tokens",
            "max_shown_words",
        )  # fmt: skip
        for name, least in (*((name, 1) for name in least_one), ("demonstration_count", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"flare's {name} must be at least {least}, but it is {getattr(self, name)}."
                )
        if not (0 <= self.theta <= 1 and 0 <= self.beta <= 1):
            raise ConfigError(
                f"flare's theta and beta are probabilities, from 0 to 1, but they are {self.theta} and "
                f"{self.beta}."
            )
        if self.preset == "paper" and not self.demonstrations and self.prompt == "auto":
            raise ConfigError(
                "flare's preset 'paper' is few-shot: name a file in IRCoT's format with "
                "--flare.demonstrations, or 'default' for the shipped ones, or use the preset 'zero_shot'."
            )

    def template(self) -> Template:
        """Load the prompt that asks for the next sentence."""
        auto = "layout" if self.demonstrations else "flare"
        return load_layout(auto if self.prompt == "auto" else self.prompt, PROMPTS)

    def question_template(self) -> Template:
        """Load the prompt that asks for an explicit query."""
        return load_template(self.question_prompt, PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that these options use."""
        return (
            (self.template(), self.question_template()) if self.query == "questions" else (self.template(),)
        )
