"""Recursive RAG's options and presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.shared import PROMPTS
from corag.core.errors import ConfigError
from corag.core.option_names import NameOrPath
from corag.core.passage_pool import BudgetPolicy
from corag.core.prompting.render import load_layout
from corag.core.prompting.template import Template, load_prompt
from corag.core.reader import ReaderConfig

Mode = Literal["simple", "recursive", "multi_hop", "self_query", "decompose"]
PromptName = Literal["mode", "hop", "gaps", "plan", "sub_answer", "combine"]
DEFAULT_MODE: Mode = "simple"  # ours, the cheapest: where the model's choice cannot be read

_OF_MODES: dict[str, tuple[PromptName, ...]] = {
    "simple": (),
    "recursive": (),
    "multi_hop": ("hop",),
    "self_query": ("gaps",),
    "decompose": ("plan", "sub_answer", "combine"),
}


@dataclass(frozen=True)
class RecursiveConfig(ReaderConfig, section="recursive"):
    """Options of recursive RAG, beside those of its reader. Numbers are the tutorial's where it has any.

    Passages are shown whole unless ``max_shown_words`` is lowered. After sub-questions a prompt with their
    answers asks for the answer: ``reader`` "cot" and demonstrations have no effect then.
    """

    preset: Literal["default", "tutorial"] = "default"
    """values for the other options: "default", or "tutorial" (the mode is chosen by words of the question; a
    judgement is followed by one search, for the first gap; sub-questions follow references; prompts see about
    as much text as there, the earliest, but in whole passages; the answer is long, and all that was
    replied)."""

    mode: Literal[Mode, "auto"] = "auto"
    """"simple" searches once; "recursive" follows references in passages; "multi_hop" asks after each search
    what to look for next; "self_query" asks for gaps and searches for all of them; "decompose" plans
    sub-questions and answers them in the order of their dependencies; "auto" chooses one of these for each
    question."""

    choose_by: Literal["model", "words"] = "model"
    """how "auto" chooses: the "model" is asked ("simple" if its reply cannot be read), or the question's
    "words" decide without a call."""

    k: Annotated[int, Ge(1)] = 5
    """passages of each search of "simple" and "recursive" (also ``top_k``), and of sub-questions that follow
    references."""

    k_per_step: Annotated[int, Ge(1)] = 3
    """passages of each search of the other modes."""

    follow_references: bool = False
    """"decompose" follows references from what it finds for a sub-question, as "recursive" does for the
    question: each sub-question has its own ``max_depth`` rounds and ``max_documents``."""

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

    max_sub_questions: Annotated[int, Ge(1)] = 5
    """sub-questions of "decompose"; further ones are ignored, and counted as malformed lines."""

    context_tokens: Annotated[int, Ge(0)] = 0
    """prompts show passages that have so many tokens together, but at least one; 0 for all."""

    context_policy: BudgetPolicy = "keep_last"  # ours: the newest were searched for to close a gap
    """which passages these are: "keep_last" shows the newest, "keep_first" the earliest. The others are also
    the first to go where the window or the budget is too small."""

    answer: Literal["short", "whole"] = "short"
    """"short" asks for the answer alone and takes what a line of the reply states as it, else its first line,
    and notes it if there were more; "whole" asks for full sentences (but for a ``qa_prompt`` of yours) and
    takes all of the reply."""

    max_step_tokens: Annotated[int, Ge(1)] = 256
    """most tokens of a judgement or a plan."""

    max_sub_answer_tokens: Annotated[int, Ge(1)] = 64
    """most tokens of a sub-answer."""

    max_shown_words: Annotated[int, Ge(1)] = (
        100_000  # no limit, in effect: a cut may take away the only line that tells
    )
    plan_prompt: NameOrPath = "recursive_plan"
    """asks for sub-questions: a shipped name, a file, or a text with {query} and {limit}."""

    ALIASES: ClassVar[dict[str, str]] = ReaderConfig.ALIASES | {"top_k": "k"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "tutorial": {
            "choose_by": "words",
            "max_follow_ups": 1,
            "follow_references": True,
            "context_tokens": 1_000,  # about its 4,000 characters
            "context_policy": "keep_first",
            "answer": "whole",
        },
    }

    def __post_init__(self) -> None:
        if self.reader == "none":
            raise ConfigError("recursive has no answer of its own to give: set reader to 'direct' or 'cot'.")

    def prompt(self, name: PromptName) -> Template:
        """Load one of the prompts."""
        shipped_name = f"recursive_{name}"
        if name == "plan":
            return load_prompt(self.plan_prompt, shipped_name, PROMPTS)
        if name == "combine" and self.answer == "whole":
            shipped_name = "recursive_long_combine"
        return load_prompt(shipped_name, shipped_name, PROMPTS)

    def qa_template(self) -> Template:
        """Load the reader's prompt; the one for long answers stands beside recursive RAG's own."""
        if self.answer == "whole" and self.qa_prompt == "auto":
            return load_layout("recursive_long", PROMPTS, needs=self.qa_fields())
        return super().qa_template()

    @property
    def goes_first(self) -> Literal["first", "last"]:
        """At which end prompts that are too long lose passages."""
        return "first" if self.context_policy == "keep_last" else "last"

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that the mode may use."""
        # Which mode "auto" takes is known for each question only, so it may use them all.
        modes = _OF_MODES if self.mode == "auto" else (self.mode,)
        names = [name for mode in modes for name in _OF_MODES[mode]]
        if self.mode == "auto" and self.choose_by == "model":
            names.insert(0, "mode")
        return (*(self.prompt(name) for name in names), *super().templates())
