"""NoR: answer from the model's own knowledge (the no-retrieval baseline of IRCoT, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from core.errors import ConfigError
from core.prompt import Segment
from core.reader import PROMPTS, ReaderConfig, read
from core.templates import Template, load_template
from core.tools import Tools
from core.types import Answer, Question


@dataclass(frozen=True)
class ClosedBookConfig(ReaderConfig):
    """Options of closed-book answering: those of the reader. Demonstrations are shown without their passages."""

    SEARCHES: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reader == "none":
            raise ConfigError("closed_book has nothing but its reader: set reader to 'direct' or 'cot'.")

    def qa_template(self) -> Template:
        """Load the prompt; "auto" without demonstrations asks without mentioning passages."""
        if self.qa_prompt == "auto" and not self.demonstrations and not self.reader_demonstrations:
            return load_template(f"chat_closed_book_{self.reader}", PROMPTS)
        return super().qa_template()

    def examples(self, *, with_context: bool = False) -> tuple[Segment, ...]:
        """Load the demonstrations without their passages."""
        return super().examples(with_context=with_context)


async def closed_book(question: Question, tools: Tools, config: ClosedBookConfig) -> Answer:
    """Ask the reader without any passage."""
    return Answer(await read(question, (), tools, config), steps=1, stopped="read")
