"""What methods that continue a transcript share: their prompt, worked examples of the user's, and an answer in the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from core.collected import clip_words
from core.errors import BudgetExhaustedError, ConfigError, DataError, RequestRefusedError
from core.files import open_text
from core.method import MethodConfig
from core.prompt import Prompt, Segment
from core.templates import Template, load_prompt
from core.text import extract_answer
from core.tools import SearchStep, Tools
from core.types import Hit

PROMPTS = Path(__file__).parent / "prompts"
ITEMS_DROP_AFTER = 1_000  # worked examples are left out of a prompt that is too long before any item of its transcript
ANSWER_CUE = "So the answer is:"  # what a chain of thought without an answer is made to go on with
_EXAMPLE = re.compile(r"^(?=Question:)", re.MULTILINE)

Item = TypeVar("Item")


@dataclass(frozen=True)
class TranscriptConfig(MethodConfig):
    """Options of a method that continues a transcript.

    ``NAME`` is the method's; it ships the prompts NAME and NAME_few_shot. ``BETWEEN``: what parts its worked examples.

    Attributes:
        preset: values for the other options: "paper" (few-shot; give ``demonstrations``) or "zero_shot" (chat models).
        demonstrations: file of worked examples that begin with "Question:", as in the paper's prompt; "" for none.
        demonstration_count: use the first so many; 0 for all.
        prompt: "auto" (few-shot with ``demonstrations``, else zero-shot), a shipped name, a file, or a text with the shipped
            one's fields.
    """

    preset: Literal["paper", "zero_shot"] = "zero_shot"
    demonstrations: str = ""
    demonstration_count: int = 0
    prompt: str = "auto"

    NAME: ClassVar[str]
    BETWEEN: ClassVar[str]
    PRESETS: ClassVar[dict[str, dict[str, Any]]]

    def __post_init__(self) -> None:
        if self.demonstration_count < 0:
            raise ConfigError(f"{self.NAME} needs a demonstration_count of at least 0, not {self.demonstration_count}.")
        if self.preset == "paper" and not self.demonstrations and self.prompt == "auto":
            raise ConfigError(
                f"{self.NAME}'s preset 'paper' is few-shot: name a file of worked examples with --{self.NAME}.demonstrations, or "
                "use the preset 'zero_shot'."
            )

    def template(self) -> Template:
        """Load the transcript's prompt."""
        shipped = f"{self.NAME}_few_shot" if self.demonstrations else self.NAME
        return load_prompt(shipped if self.prompt == "auto" else self.prompt, shipped, PROMPTS)

    def examples(self) -> tuple[Segment, ...]:
        """Load the worked examples."""
        return worked_examples(self.demonstrations, self.demonstration_count, self.BETWEEN)

    def templates(self) -> tuple[Template, ...]:
        """The transcript's prompt."""
        return (self.template(),)

    def files(self) -> tuple[str, ...]:
        """The file of worked examples."""
        return (self.demonstrations,) if self.demonstrations else ()

    def check_files(self) -> None:
        """Load prompts and worked examples."""
        super().check_files()
        self.examples()


@lru_cache(maxsize=16)
def worked_examples(path: str, count: int, separator: str) -> tuple[Segment, ...]:
    """Read worked examples, each of which begins with a line "Question: ...", as the papers' files have them; "" gives none.

    ``count``: keep the first so many (0: all). Each example ends in ``separator``. When a prompt is too long, the first go first.
    Raises :class:`DataError` for a file that holds anything else.
    """
    if not path:
        return ()
    with open_text(path) as stream:
        before, *examples = _EXAMPLE.split(stream.read())
    if before.strip() or not examples:
        raise DataError(f"{path}: expected worked examples that begin with a line 'Question: ...', and nothing before.")
    kept = examples[:count] if count else examples
    return tuple(Segment(example.strip() + separator, rank, "demonstration") for rank, example in enumerate(kept))


def shown_passages(hits: Sequence[Hit], template: Template, max_words: int) -> list[Segment]:
    """Write passages, cut to ``max_words`` words, best first. When the prompt is too long, the worst go first."""
    passages = [hit.passage for hit in hits]
    items = [{"title": passage.title, "text": clip_words(passage.text.strip(), max_words)} for passage in passages]
    return template.items("passage", items, range(len(items), 0, -1))


async def conclude(
    prompt: Callable[[Sequence[Item]], Prompt],
    items: Sequence[Item],
    tools: Tools,
    *,
    max_tokens: int,
    stop: Sequence[str] = ("\n",),
    read: Callable[[str], str] = extract_answer,
) -> str:
    """Ask for the answer with as many of the newest items of a transcript as budget and window allow, and ``read`` the reply.

    Items are left out here, not by a drop rank, because chat prompts have them in the reply's beginning, which is kept whole: what
    a full window cuts is the question. Returns "" if the budget does not allow to ask without any. Raises
    :class:`RequestRefusedError` if the window does not.
    """
    answer = ""
    for first in range(len(items) + 1):
        try:
            reply = await tools.generate(
                prompt(items[first:]), role="forced_answer", max_tokens=max_tokens, stop=stop, path="end"
            )
        except BudgetExhaustedError:
            continue
        except RequestRefusedError:
            if first == len(items):
                raise
            continue
        answer = read(reply.text)
        if not reply.shortening.cut_tokens:
            break
    return answer


def passages_found(tools: Tools) -> tuple[str, ...]:
    """Return the ids of all passages that the question's searches found, in order, whether or not the budget let them be read."""
    hits = (hit for step in tools.steps if isinstance(step, SearchStep) for hit in step.hits)
    return tuple(dict.fromkeys(hit.passage.id for hit in hits))
