"""Search-o1's options and presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from baselines.transcripts import PROMPTS
from core.errors import ConfigError
from core.method import MethodConfig
from core.prompting.template import Template, load_prompt


@dataclass(frozen=True)
class SearchO1Config(MethodConfig):
    """Options of Search-o1.

    Attributes:
        preset: values for the other options: "greedy", or "released_code" (as for QwQ-32B on multi-hop
            questions; needs a window of more than 20,480 tokens. The code gives single-hop questions 5
            searches, and other models 8,192 tokens and no penalty).
        max_searches: searches at most; a query beyond gets a note.
        max_turns: turns of reasoning at most.
        k: passages that a search returns (also ``top_k``).
        max_shown_words: passages are cut to so many words in prompts (released code: 3,000 characters of a
            web page).
        temperature: of reasoning and of reading documents; a forced answer is greedy.
        top_p: sample from the likeliest tokens that have this much probability together.
        sampling_top_k: sample from so many likeliest tokens; 0 for all.
        repetition_penalty: divides the likelihood of tokens that occurred; 1 for none.
        force_answer: ask for the answer if the model boxed none. A spent budget is always answered so.
        max_turn_tokens: most tokens of a turn of reasoning.
        max_result_tokens: most tokens of reading documents.
        max_answer_tokens: most tokens of a forced answer.
        reasoning_prompt: a shipped name, a file, or a text with {query}, {max_searches} and {reasoning}.
        documents_prompt: the same with {sub_query}, {passages}, {reasoning} and {nothing_helpful}.
    """

    preset: Literal["greedy", "released_code"] = "greedy"
    max_searches: int = 10
    max_turns: int = 15
    k: int = 5
    max_shown_words: int = 350
    temperature: float = 0.0
    top_p: float = 1.0
    sampling_top_k: int = 0
    repetition_penalty: float = 1.0
    force_answer: bool = True
    max_turn_tokens: int = 1024
    max_result_tokens: int = 512
    max_answer_tokens: int = 64
    reasoning_prompt: str = "search_o1"
    documents_prompt: str = "search_o1_documents"

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_passage_words": "max_shown_words"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "greedy": {},
        "released_code": {
            "k": 10, "max_shown_words": 500, "temperature": 0.7, "top_p": 0.8, "sampling_top_k": 20, "repetition_penalty": 1.05,
            "force_answer": False, "max_turn_tokens": 20_480, "max_result_tokens": 20_480,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        if min(self.max_turns, self.k, self.max_shown_words) < 1 or self.max_searches < 0:
            raise ConfigError(
                "search_o1 needs max_turns, k and max_shown_words of at least 1 and max_searches of at "
                f"least 0, but they are {self.max_turns}, {self.k}, {self.max_shown_words} and "
                f"{self.max_searches}."
            )
        if not 0 < self.top_p <= 1 or self.sampling_top_k < 0 or self.repetition_penalty <= 0:
            raise ConfigError(
                "search_o1 needs top_p in (0, 1], sampling_top_k of at least 0 and a repetition_penalty "
                f"above 0, but they are {self.top_p}, {self.sampling_top_k} and {self.repetition_penalty}."
            )

    def template(self, name: Literal["reasoning", "documents"]) -> Template:
        """Load one of the prompts."""
        if name == "reasoning":
            return load_prompt(self.reasoning_prompt, "search_o1", PROMPTS)
        return load_prompt(self.documents_prompt, "search_o1_documents", PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """Both prompts."""
        return (self.template("reasoning"), self.template("documents"))
