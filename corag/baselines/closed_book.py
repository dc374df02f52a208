"""NoR: answer from the model's own knowledge, without retrieval.

The no-retrieval baseline of IRCoT (Trivedi et al., ACL 2023, arXiv 2212.10509, section 4.2): the reader that
all methods share is asked with no passage. Demonstrations lose their passages too, as in the released prompts
"no_context". What is ours: the wording for chat models without demonstrations, which does not mention
passages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from corag.core.errors import ConfigError
from corag.core.method import Method
from corag.core.prompting.demonstrations import Demonstration
from corag.core.prompting.render import load_layout
from corag.core.prompting.template import Template
from corag.core.reader import ReaderConfig, read_once
from corag.core.tools import Tools
from corag.core.types import Answer, Question


@dataclass(frozen=True)
class ClosedBookConfig(ReaderConfig, section="closed_book"):
    """Options of closed-book answering: those of the reader."""

    def __post_init__(self) -> None:
        if self.reader == "none":
            raise ConfigError("closed_book has nothing but its reader: set reader to 'direct' or 'cot'.")

    def qa_fields(self) -> tuple[str, ...]:
        """The question alone."""
        return ("query", *self.few_shot_fields())

    def qa_template(self) -> Template:
        """Load the prompt; "auto" without demonstrations asks without mentioning passages."""
        if self.qa_prompt == "auto" and not self.few_shot_fields():
            return load_layout(f"chat_closed_book_{self.reader}")
        return super().qa_template()

    def reader_examples(self) -> tuple[Demonstration, ...]:
        """Load the demonstrations without their passages."""
        return tuple(replace(example, context="") for example in super().reader_examples())


async def closed_book(question: Question, tools: Tools, config: ClosedBookConfig) -> Answer:
    """Ask the reader without any passage; a token budget too small for all demonstrations leaves some out."""
    return await read_once(question, (), tools, config)


METHOD = Method(
    closed_book,
    ClosedBookConfig,
    "the model's own knowledge, no retrieval (NoR)",
    also_called=("nor", "no_retrieval"),
    searches=False,
)
