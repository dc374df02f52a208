"""Prompts as values: messages made of segments that say what may be left out when the window is too small.

A method never counts tokens. It marks each demonstration or passage as a segment with a ``drop`` rank; the
layer below drops whole segments, lowest rank first, until the prompt fits, and reports what it dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, cast, get_args

from corag.core.errors import DataError

Role = Literal["system", "user", "assistant"]
Item = Literal["passage", "hop", "demonstration"]

# Stretches of a text (from, to, in characters) that the author of a prompt wrote: there the name of a special
# token stands for that token. Everywhere else, in questions, passages and replies, it is text like any other.
Spans = tuple[tuple[int, int], ...]

_DROP_AFTER: dict[str, int] = {"demonstration": 0, "passage": 1_000_000, "hop": 2_000_000}


def drop_rank(kind: Item, rank: int) -> int:
    """Return a list item's ``drop`` by the rule of all methods: demonstrations, then passages, then hops.

    So what shows the form only goes before what the answer rests on. ``rank``: among those of its kind; the
    lowest goes first.
    """
    return _DROP_AFTER[kind] + rank


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of prompt text that is kept or dropped as a whole.

    It carries its own separators, so that dropping it leaves the rest as it was. ``drop``: None if it must
    stay; otherwise segments go in rising order of ``drop`` (equal ranks: in order of appearance), see
    :func:`drop_rank`. ``kind`` names it in the report, such as "demonstration" or "passage". ``wording``:
    where the prompt's author speaks, see :data:`Spans`.
    """

    text: str
    drop: int | None = None
    kind: str = "text"
    wording: Spans = ()


def joined_wording(segments: Sequence[Segment]) -> Spans:
    """Return where the prompt's author speaks in the texts of segments, one behind the other."""
    starts = accumulate((len(segment.text) for segment in segments), initial=0)
    return tuple(
        (at + start, at + end)
        for at, segment in zip(starts, segments, strict=False)  # there is one more start, the end
        for start, end in segment.wording
    )


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        """The turn's whole text."""
        return "".join(segment.text for segment in self.segments)

    @property
    def wording(self) -> Spans:
        """Where in the turn's text the prompt's author speaks."""
        return joined_wording(self.segments)


@dataclass(frozen=True, slots=True)
class Thought:
    """What a model wrote before its reply, for itself. ``closed``: it is at an end, and the reply begins."""

    text: str
    closed: bool = True


ALOUD = Thought("", closed=False)
"""Of a prompt whose reply is to have all that the model writes, thoughts too, to be continued as a whole."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is asked to continue.

    ``plain`` prompts are continued as they stand, by chat models too: the one message's text is the prompt,
    stripped of outer white space. Other prompts go through the model's chat template (a base model gets the
    messages' texts separated by blank lines). ``prefix`` begins the reply and is not repeated in the
    completion; ``prefix_wording``: where its author speaks. ``thought``: what the model thought before the
    reply, or :data:`ALOUD`.
    """

    messages: tuple[Message, ...]
    prefix: str = ""
    plain: bool = False
    prefix_wording: Spans = ()
    thought: Thought | None = None

    @staticmethod
    def of_text(text: str | Sequence[Segment]) -> Prompt:
        """Make a plain prompt from text or segments."""
        segments = (Segment(text),) if isinstance(text, str) else tuple(text)
        return Prompt((Message("user", segments),), plain=True)

    @property
    def text(self) -> str:
        """All text of the prompt without any chat template: for reading, hashing and scripted tests."""
        blocks = [message.text for message in self.messages] + [self.prefix] * bool(self.prefix)
        whole = "\n\n".join(blocks)
        return whole.strip() if self.plain else whole


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


def as_prompt(prompt: Any) -> Prompt:
    """Return a prompt; a text is a user's turn, and messages with role and content are a conversation.

    Raises :class:`DataError` for anything else.

    >>> as_prompt("Who?") == as_prompt([{"role": "user", "content": "Who?"}])
    True
    """
    if isinstance(prompt, Prompt):
        return prompt
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    try:
        turns = [(str(each["role"]), each["content"]) for each in messages]
    except (TypeError, KeyError):
        turns = []
    if not turns or not all(role in get_args(Role) and isinstance(text, str) for role, text in turns):
        raise DataError(
            f"{prompt!r:.80} is no prompt: give a text, messages such as "
            '[{"role": "user", "content": "..."}], or a corag.core.prompting.Prompt.'
        )
    return Prompt(tuple(Message(cast("Role", role), (Segment(text),)) for role, text in turns))
