"""Transcripts with worked examples, which several methods continue.

ReAct and Self-Ask continue a transcript in the papers' own format; IterDRAG writes in Self-Ask's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from corag.baselines.shared import PROMPTS, check_few_shot
from corag.core.errors import DataError
from corag.core.method import MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.demonstrations import demonstration_file
from corag.core.prompting.prompt import Segment
from corag.core.prompting.template import Template, load_prompt
from corag.core.system.files import keep_read, read_text

EXAMPLES = Path(__file__).parent / "shipped/demonstrations"

# How a line of Self-Ask's transcripts begins (Press et al. 2023), and of IterDRAG's.
FOLLOW_UP, INTERMEDIATE, FINAL = "Follow up:", "Intermediate answer:", "So the final answer is:"

# A lookahead, so that each part keeps its "Question:" when a file is split here.
_EXAMPLE = re.compile(r"^(?=Question:)", re.MULTILINE)


@dataclass(frozen=True)
class TranscriptConfig(MethodConfig):
    """Options of a method that continues a transcript.

    Under the name of its section it ships two prompts, the second with _few_shot behind the name.
    """

    preset: Literal["paper", "zero_shot"] = "zero_shot"
    """values for the other options: "paper" (few-shot; give ``demonstrations``) or "zero_shot" (chat
    models)."""

    demonstrations: NameOrPath = ""
    """file of few-shot demonstrations that begin with "Question:", as in the paper's prompt, "default" for
    the four shipped ones, or "" for none."""

    demonstration_count: Annotated[int, Ge(0)] = 0
    """use the first n demonstrations; 0 for all."""

    prompt: NameOrPath = "auto"
    """"auto" (few-shot with ``demonstrations``, else zero-shot), a shipped name, a file, or a text with the
    shipped one's fields."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]]

    def __post_init__(self) -> None:
        check_few_shot(self.SECTION, self.preset, self.demonstrations, self.prompt)

    def template(self) -> Template:
        """Load the transcript's prompt."""
        # Examples teach the form that the zero-shot prompt has to describe.
        shipped_name = f"{self.SECTION}_few_shot" if self.demonstrations else self.SECTION
        return load_prompt(shipped_name if self.prompt == "auto" else self.prompt, shipped_name, PROMPTS)

    def examples(self) -> list[Segment]:
        """Load the worked examples, as the prompt says."""
        examples = worked_examples(self.files().get(self.demonstrations, ""), self.demonstration_count)
        return self.template().items("demonstration", [{"text": example} for example in examples])

    def templates(self) -> tuple[Template, ...]:
        """The transcript's prompt."""
        return (self.template(),)

    def files(self) -> Mapping[str, str]:
        """The file of worked examples."""
        file = demonstration_file(self.demonstrations, EXAMPLES / f"{self.SECTION}.txt")
        return {self.demonstrations: file} if file else {}

    def check_files(self) -> None:
        """Load prompts and worked examples."""
        super().check_files()
        self.examples()


@keep_read  # every prompt of every question asks for them
def worked_examples(path: str, count: int) -> tuple[str, ...]:
    """Read worked examples as the papers' files have them: each begins with a line "Question: ...".

    Args:
        path: the file; "" gives no examples.
        count: keep the first so many; 0 for all.

    Raises:
        DataError: the file holds anything before the first example, or no example.
    """
    if not path:
        return ()
    before, *examples = _EXAMPLE.split(read_text(path))
    if before.strip() or not examples:
        raise DataError(
            f"{path}: expected worked examples that begin with a line 'Question: ...', and nothing before."
        )
    return tuple(example.strip() for example in (examples[:count] if count else examples))
