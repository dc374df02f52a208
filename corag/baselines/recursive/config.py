"""The options of recursive RAG, and the prompts that each of its modes may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.shared import PROMPTS
from corag.core.errors import ConfigError
from corag.core.prompting.template import Template, load_template
from corag.core.reader import ReaderConfig

Mode = Literal["simple", "recursive", "multi_hop", "self_query"]
PromptName = Literal["hop", "gaps"]

_OF_MODES: dict[str, tuple[PromptName, ...]] = {
    "multi_hop": ("hop",),
    "self_query": ("gaps",),
    "auto": ("hop", "gaps"),
}


@dataclass(frozen=True)
class RecursiveConfig(ReaderConfig, section="recursive"):
    """Options of recursive RAG, beside those of its reader. Numbers are the tutorial's where it has any.

    Passages are shown whole unless ``max_shown_words`` is lowered.
    """

    preset: Literal["default", "tutorial"] = "default"
    """values for the other options: "default", or "tutorial" (a judgement is followed by one search, for the
    first gap)."""

    mode: Literal[Mode, "auto"] = "auto"
    """"simple" searches once; "recursive" follows references in passages; "multi_hop" asks after each search
    what to look for next; "self_query" asks for gaps and searches for all of them; "auto" takes one
    of these, by words of the question."""

    k: Annotated[int, Ge(1)] = 5
    """passages of each search of "simple" and "recursive" (also ``top_k``)."""

    k_per_step: Annotated[int, Ge(1)] = 3
    """passages of each search of the other modes."""

    max_documents: Annotated[int, Ge(1)] = 10
    """most passages collected; further ones are refused."""

    max_depth: Annotated[int, Ge(1)] = 3
    """rounds of searches of "recursive"; the question's own search is the first."""

    max_references: Annotated[int, Ge(1)] = 5
    """references followed in each further round."""

    max_hops: Annotated[int, Ge(1)] = 3
    """searches of "multi_hop"."""

    max_iterations: Annotated[int, Ge(1)] = 3
    """rounds of searches of "self_query"."""

    max_follow_ups: Annotated[int, Ge(1)] = 3
    """searches in each further round of "self_query"."""

    max_step_tokens: Annotated[int, Ge(1)] = 256
    """most tokens of a judgement."""

    max_shown_words: Annotated[int, Ge(1)] = 100_000  # in effect no limit: a cut may take the line that tells

    ALIASES: ClassVar[dict[str, str]] = ReaderConfig.ALIASES | {"top_k": "k"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "tutorial": {"max_follow_ups": 1},
    }

    def __post_init__(self) -> None:
        if self.reader == "none":
            raise ConfigError("recursive has no answer of its own to give: set reader to 'direct' or 'cot'.")

    def prompt(self, name: PromptName) -> Template:
        """Load one of the prompts."""
        return load_template(f"recursive_{name}", PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that the mode may use."""
        return (*map(self.prompt, _OF_MODES.get(self.mode, ())), *super().templates())
