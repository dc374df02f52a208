"""Prompts as values: messages made of segments that say what may be left out when the window is too small.

A method never counts tokens. It marks each demonstration or passage as a segment with a ``drop`` rank; the
floor below drops whole segments, lowest rank first, until the prompt fits, and reports what it dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant"]
Item = Literal["passage", "hop", "demonstration"]

_DROP_AFTER: dict[str, int] = {"demonstration": 0, "passage": 1_000_000, "hop": 2_000_000}


def drop_rank(kind: Item, place: int) -> int:
    """Return a list item's ``drop`` by the rule of all methods: demonstrations, then passages, then hops.

    So what shows the form only goes before what the answer rests on. ``place``: among those of its kind; the
    lowest goes first.
    """
    return _DROP_AFTER[kind] + place


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of prompt text that is kept or dropped as a whole.

    It carries its own separators, so that dropping it leaves the rest as it was. ``drop``: None if it must
    stay; otherwise segments go in rising order of ``drop`` (equal ranks: in order of appearance), see
    :func:`drop_rank`. ``kind`` names it in the report, such as "demonstration" or "passage".
    """

    text: str
    drop: int | None = None
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        """The turn's whole text."""
        return "".join(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is asked to continue.

    ``plain`` prompts are continued as they stand, by chat models too: the one message's text is the prompt,
    stripped of outer white space. Other prompts go through the model's chat template (a base model gets the
    messages' texts separated by blank lines). ``prefix`` begins the reply and is not repeated in the
    completion.
    """

    messages: tuple[Message, ...]
    prefix: str = ""
    plain: bool = False

    @staticmethod
    def of_text(text: str | Sequence[Segment]) -> Prompt:
        """Make a plain prompt from text or segments."""
        segments = (Segment(text),) if isinstance(text, str) else tuple(text)
        return Prompt((Message("user", segments),), plain=True)

    @property
    def text(self) -> str:
        """All text of the prompt without any chat template: for reading, hashing and scripted tests."""
        blocks = [message.text for message in self.messages] + [self.prefix] * bool(self.prefix)
        joined = "\n\n".join(blocks)
        return joined.strip() if self.plain else joined


@dataclass(frozen=True, slots=True)
class Shortening:
    """What was left out of a prompt to fit the window.

    ``dropped``: whole segments by kind, as (kind, how many). ``cut_tokens`` is 0 unless the segments that
    must stay are too long by themselves; then the text of the longest message loses tokens from its front
    (the question stands at the end).
    """

    dropped: tuple[tuple[str, int], ...] = ()
    cut_tokens: int = 0

    def count(self, kind: str) -> int:
        """Return how many segments of this kind were dropped."""
        return dict(self.dropped).get(kind, 0)

    def __bool__(self) -> bool:
        return bool(self.dropped or self.cut_tokens)


NOTHING_LEFT_OUT = Shortening()
