"""Recursive RAG's options and presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from baselines.shared import PROMPTS
from core.errors import ConfigError, nearest
from core.passage_pool import BudgetPolicy
from core.prompting.render import load_layout
from core.prompting.template import Template, load_prompt
from core.reader import ReaderConfig

Mode = Literal["simple", "recursive", "multi_hop", "self_query", "decompose"]
PromptName = Literal["mode", "hop", "gaps", "plan", "sub_answer", "combine"]

_PROMPTS_OF: dict[str, tuple[PromptName, ...]] = {
    "multi_hop": ("hop",),
    "self_query": ("gaps",),
    "decompose": ("plan", "sub_answer", "combine"),
    # It is known for each question only which of them are needed.
    "auto": ("mode", "hop", "gaps", "plan", "sub_answer", "combine"),
}


@dataclass(frozen=True)
class RecursiveConfig(ReaderConfig):
    """Options of recursive RAG, beside those of its reader. Numbers are the tutorial's where it has any.

    Passages are shown whole unless ``max_shown_words`` is lowered. After sub-questions ``combine_prompt``
    asks for the answer: ``reader`` "cot" and demonstrations have no effect then.

    Attributes:
        preset: values for the other options: "default", or "tutorial" (the mode is chosen by words of the
            question; a judgement is followed by one search, for the first gap; sub-questions follow
            references; prompts see about as much text as there, the earliest, but in whole passages; the
            answer is long, and all that was replied).
        mode: "simple" searches once; "recursive" follows references in passages; "multi_hop" asks after each
            search what to look for next; "self_query" asks for gaps and searches for all of them; "decompose"
            plans sub-questions and answers them in the order of their dependencies; "auto" chooses one of
            these for each question.
        choose_by: how "auto" chooses: the "model" by the prompt ``mode_prompt``, or the question's "words"
            without a call.
        default_mode: what "auto" takes when the model's choice cannot be read.
        k: passages of each search of "simple" and "recursive" (also ``top_k``).
        k_per_step: passages of each search of the other modes.
        follow_references: "decompose" follows references from what it finds for a sub-question, as
            "recursive" does for the question: each sub-question has its own ``max_depth`` rounds and
            ``max_documents``.
        max_documents: most passages collected; further ones are refused.
        max_depth: rounds of searches of "recursive"; the question's own search is the first.
        max_references: references followed in each further round.
        max_hops: searches of "multi_hop".
        max_iterations: rounds of searches of "self_query".
        max_follow_ups: searches in each further round of "self_query".
        max_sub_questions: sub-questions of "decompose"; further ones are ignored, and counted as malformed
            lines.
        context_tokens: prompts show passages that have so many tokens together, but at least one; 0 for all.
        context_policy: which passages these are: "keep_last" shows the newest, "keep_first" the earliest. The
            others are also the first to go where the window or the budget is too small.
        answer: "short" takes what a line of the reply states as the answer, else its first line, and notes
            it if there were more; "whole" takes all of the reply.
        max_step_tokens: most tokens of a judgement or a plan.
        max_sub_answer_tokens: most tokens of a sub-answer.
        mode_prompt: a shipped name, a file, or a text with {query}.
        hop_prompt: the same with {query}, {paragraphs} and {hops}, the searches so far.
        gaps_prompt: the same, and {limit}.
        plan_prompt: the same with {query} and {limit}.
        sub_answer_prompt: the same with {query}, which is the sub-question, and {paragraphs}.
        combine_prompt: the same with {query}, {paragraphs} and {hops}, the sub-questions with their answers.
    """

    preset: Literal["default", "tutorial"] = "default"
    mode: Literal[Mode, "auto"] = "auto"
    choose_by: Literal["model", "words"] = "model"
    default_mode: Mode = "simple"  # ours: the cheapest
    k: int = 5
    k_per_step: int = 3
    follow_references: bool = False
    max_documents: int = 10
    max_depth: int = 3
    max_references: int = 5
    max_hops: int = 3
    max_iterations: int = 3
    max_follow_ups: int = 3
    max_sub_questions: int = 5
    context_tokens: int = 0
    context_policy: BudgetPolicy = "keep_last"  # ours: the newest were searched for to close a gap
    answer: Literal["short", "whole"] = "short"
    max_step_tokens: int = 256
    max_sub_answer_tokens: int = 64
    max_shown_words: int = 100_000  # no limit, in effect: a cut may take away the only line that tells
    mode_prompt: str = "recursive_mode"
    hop_prompt: str = "recursive_hop"
    gaps_prompt: str = "recursive_gaps"
    plan_prompt: str = "recursive_plan"
    sub_answer_prompt: str = "recursive_sub_answer"
    combine_prompt: str = "recursive_combine"

    LATER: ClassVar[tuple[str, ...]] = (
        *ReaderConfig.LATER, "follow_references", "context_policy", "answer",
    )  # fmt: skip
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
            "qa_prompt": "recursive_long",
            "combine_prompt": "recursive_long_combine",
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        modes = get_args(Mode)
        choices = {
            "mode": (*modes, "auto"),
            "default_mode": modes,
            "context_policy": get_args(BudgetPolicy),
            "answer": ("short", "whole"),
        }
        for name, known in choices.items():
            if (value := getattr(self, name)) not in known:
                raise ConfigError(f"recursive has no {name} '{value}': {nearest(value, known)}")
        at_least_1 = (
            "k k_per_step max_documents max_depth max_references max_hops max_iterations max_follow_ups "
            "max_sub_questions max_step_tokens max_sub_answer_tokens"
        )
        for name in at_least_1.split():
            if getattr(self, name) < 1:
                raise ConfigError(f"recursive's {name} must be at least 1, but it is {getattr(self, name)}.")
        if self.context_tokens < 0:
            raise ConfigError(
                f"recursive's context_tokens must be 0 or more, but it is {self.context_tokens}."
            )
        if self.reader == "none":
            raise ConfigError("recursive has no answer of its own to give: set reader to 'direct' or 'cot'.")

    def prompt(self, name: PromptName) -> Template:
        """Load one of the prompts."""
        source: str = getattr(self, f"{name}_prompt")
        return load_prompt(source, f"recursive_{name}", PROMPTS)

    def qa_template(self) -> Template:
        """Load the reader's prompt; the one for long answers stands beside recursive RAG's own."""
        own = self.qa_prompt == "recursive_long"
        return load_layout(self.qa_prompt, PROMPTS) if own else super().qa_template()

    @property
    def goes_first(self) -> Literal["first", "last"]:
        """At which end prompts that are too long lose passages."""
        return "first" if self.context_policy == "keep_last" else "last"

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that the mode may use."""
        names = _PROMPTS_OF.get(self.mode, ())
        if self.choose_by == "words":
            names = tuple(name for name in names if name != "mode")
        return (*(self.prompt(name) for name in names), *super().templates())
