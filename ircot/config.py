"""IRCoT's options and presets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from core.errors import ConfigError
from core.passage_pool import BudgetPolicy
from core.prompting.render import load_layout
from core.prompting.template import Template
from core.reader import ReaderConfig
from core.sentences import Splitter

PROMPTS = Path(__file__).parent / "prompts"

# How the paper's code searches: Elasticsearch's default similarity (BM25 with k1 1.2 and b 0.75) on title and text, whose
# scores add. `--retriever.bm25 ircot` is made of it.
BM25 = (1.2, 0.75, ("title", "text"))


@dataclass(frozen=True)
class IRCoTConfig(ReaderConfig):
    """Options of IRCoT.

    Attributes:
        preset: values for the other options: "paper" (few-shot, 8 steps, strict exit rule; give
            ``demonstrations``), "paper_code" (the same with the released code's 10 steps) or "zero_shot"
            (chat models, lenient exit rule).
        k_per_step: passages that each search returns (also ``top_k``). The paper tunes it in {2, 4, 6, 8}.
        max_steps: most thoughts; no search follows the last one.
        paragraph_budget: most passages collected over all steps.
        budget_policy: "keep_first" ignores passages beyond the budget (the paper), "keep_last" lets the
            oldest go.
        stop_rule: "strict" ends on the newest thought's "... answer is: X" by the released code's pattern;
            "lenient" also when the newest thought holds ``stop_sequence`` in any case.
        stop_sequence: the words that end a lenient run.
        strip_question_words: drop who, what, is, ... from queries, as the paper does for BM25; for dense
            indexes try false.
        sentence_splitter: how a thought's first sentence is found: "rules", or "spacy" as in the released
            code.
        max_thought_tokens: most tokens generated for one thought.
        max_collected_words: longer passages are not collected (released code: 600).
        near_duplicate: passages this similar (percent, title and text) to a kept one are not collected.
        reasoning_prompt: "auto" (``layout`` with demonstrations, else ``chat_reason``), a shipped name, a
            file, or a text with {query}, {paragraphs} and {cot_history}.
    """

    preset: Literal["paper", "paper_code", "zero_shot"] = "zero_shot"
    k_per_step: int = 4
    max_steps: int = 8
    paragraph_budget: int = 15
    budget_policy: BudgetPolicy = "keep_first"
    stop_rule: Literal["strict", "lenient"] = "lenient"
    stop_sequence: str = "answer is:"
    strip_question_words: bool = True
    sentence_splitter: Splitter = "rules"
    max_thought_tokens: int = 200
    max_collected_words: int = 600
    near_duplicate: float = 90.0
    reasoning_prompt: str = "auto"

    ALIASES: ClassVar[dict[str, str]] = ReaderConfig.ALIASES | {
        "top_k": "k_per_step", "max_passage_words": "max_collected_words",
    }  # fmt: skip
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"stop_rule": "strict", "reader": "cot", "max_thought_tokens": 300, "max_answer_tokens": 300},
        "paper_code": {
            "stop_rule": "strict", "reader": "cot", "max_thought_tokens": 300, "max_answer_tokens": 300, "max_steps": 10,
        },
        "zero_shot": {},
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.k_per_step, self.max_steps, self.paragraph_budget) < 1:
            raise ConfigError(
                "ircot needs k_per_step, max_steps and paragraph_budget of at least 1, but they are "
                f"{self.k_per_step}, {self.max_steps} and {self.paragraph_budget}."
            )

        if self.preset != "zero_shot" and not self.demonstrations and self.reasoning_prompt == "auto":
            raise ConfigError(
                f"ircot's preset '{self.preset}' is few-shot: name a file in IRCoT's format with "
                "--ircot.demonstrations, or 'default' for the shipped ones, or use the preset 'zero_shot'."
            )

    def reasoning_template(self) -> Template:
        """Load the prompt that asks for the next thought."""
        auto = "layout" if self.demonstrations else "chat_reason"
        return load_layout(auto if self.reasoning_prompt == "auto" else self.reasoning_prompt, PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that IRCoT may use."""
        return (self.reasoning_template(), *super().templates())
