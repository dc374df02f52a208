"""The reader: one call that turns a question and its passages into an answer. Shared by every method that ends in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from core.collected import passage_segments
from core.demonstrations import load_demonstrations
from core.errors import ConfigError
from core.method import MethodConfig
from core.prompt import Prompt, Segment
from core.templates import Template, load_template
from core.text import extract_answer
from core.tools import Tools
from core.types import Passage, Question

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class ReaderConfig(MethodConfig):
    """Options of the reader, under the same names in every method.

    Attributes:
        reader: "direct" asks for the answer alone, "cot" for a chain of thought that ends in it; "none" skips the reader, where
            a method has its own answer to give.
        qa_prompt: the prompt: "auto" (``layout`` with demonstrations, else ``chat_direct`` or ``chat_cot``), the name of a
            shipped prompt, a file, or a text with {query} and {paragraphs}.
        demonstrations: file of worked examples in IRCoT's format with chains of thought; "" for none.
        reader_demonstrations: the same for the reader; "" makes them from ``demonstrations`` (a direct reader gets bare answers).
        demonstration_count: use the first so many demonstrations; 0 for all.
        demonstration_ids: use the demonstrations with these qids instead, in this order (IRCoT's paper draws three sets of 15).
        max_answer_tokens: most tokens that the reader may write.
        max_paragraph_words: passages are cut to so many words in prompts (IRCoT: 350).
    """

    reader: Literal["direct", "cot", "none"] = "direct"
    qa_prompt: str = "auto"
    demonstrations: str = ""
    reader_demonstrations: str = ""
    demonstration_count: int = 15
    demonstration_ids: list[str] = field(default_factory=list)
    max_answer_tokens: int = 200
    max_paragraph_words: int = 350

    def __post_init__(self) -> None:
        if self.demonstration_count < 0 or self.max_answer_tokens < 1 or self.max_paragraph_words < 1:
            raise ConfigError(
                "demonstration_count must be at least 0, max_answer_tokens and max_paragraph_words at least 1, but they are "
                f"{self.demonstration_count}, {self.max_answer_tokens} and {self.max_paragraph_words}."
            )

    def qa_template(self) -> Template:
        """Load the reader's prompt."""
        name = self.qa_prompt
        if name == "auto":
            name = "layout" if self.demonstrations or self.reader_demonstrations else f"chat_{self.reader}"
        return load_template(name, PROMPTS)

    def examples(self, *, with_context: bool = True) -> tuple[Segment, ...]:
        """Load the reader's demonstrations, with or without their passages."""
        return load_demonstrations(
            self.reader_demonstrations or self.demonstrations,
            self.demonstration_count,
            tuple(self.demonstration_ids),
            direct=self.reader == "direct",
            with_context=with_context,
        )

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that the method may use."""
        return () if self.reader == "none" else (self.qa_template(),)

    def files(self) -> tuple[str, ...]:
        """The files of demonstrations."""
        return tuple(file for file in (self.demonstrations, self.reader_demonstrations) if file)

    def check_files(self) -> None:
        """Load prompts and demonstrations."""
        super().check_files()
        self.examples()


async def read(
    question: Question, passages: Sequence[Passage], tools: Tools, config: ReaderConfig, *, path: str = ""
) -> str:
    """Answer the question from the passages, with a fresh prompt (IRCoT section 3.2: the chain of thought is not shown)."""
    return extract_answer(await full_reply(question, passages, tools, config, path=path))


async def full_reply(
    question: Question, passages: Sequence[Passage], tools: Tools, config: ReaderConfig, *, path: str = ""
) -> str:
    """Return all that the reader writes: its chain of thought, if that was asked for, and the answer."""
    prompt = reader_prompt(question, passages, config)
    stop = ("\n",) if prompt.plain else ()
    reply = await tools.generate(prompt, role="reader", max_tokens=config.max_answer_tokens, stop=stop, path=path)
    return reply.text


def reader_prompt(question: Question, passages: Sequence[Passage], config: ReaderConfig) -> Prompt:
    """Return what the reader is asked."""
    return config.qa_template().render(
        {
            "query": question.text,
            "paragraphs": passage_segments(passages, config.max_paragraph_words),
            "demonstrations": config.examples(),
            "cot_history": "",
        }
    )
