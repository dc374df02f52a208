"""Prompt files: data with a version, shipped beside their method or brought by the user.

A file begins with ``version: N``, then has sections headed ``--- user``, ``--- system``, ``--- assistant``
(the beginning of the reply, which the model continues) or a single ``--- plain`` (text that the model
continues as it stands, without a chat template). ``{field}`` marks where a value goes; braces around anything
else are ordinary text. The name of a model's special token in a prompt file is that token, in a value it is
text.

A prompt with lists in it also says how they are written: ``--- passage``, ``--- hop`` and ``---
demonstration`` hold one item of each, followed by a line break, ``--- no_passages`` and ``--- no_hops`` what
stands there when the list is empty. What a user's own prompt does not say of that is as in a shipped one.

What a field stands for reaches the model nowhere else. So a user's prompt must have the fields of the shipped
one whose place it takes, but those that this one lists at its head: ``optional: task, refusal``. That holds
for the fields of its lists' items, too.

``reply: whole`` at the head says that the whole reply is the answer, sentences and all; else the short answer
that it states is taken out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from corag.core.errors import ConfigError, nearest
from corag.core.language.text import extract_answer
from corag.core.prompting.prompt import Item, Message, Prompt, Role, Segment, drop_rank, joined_wording
from corag.core.seeds import stable_hash
from corag.core.system.files import keep_read, read_text

Section = Literal["system", "user", "assistant", "plain"]
Piece = Literal["passage", "no_passages", "hop", "no_hops", "demonstration"]
_WHEN_EMPTY: dict[Item, Piece] = {"passage": "no_passages", "hop": "no_hops"}
_HEADING = re.compile(r"^--- (\w+)[ \t]*\n", re.MULTILINE)
_FIELD = re.compile(r"\{(\w+)\}")
INLINE = "inline"  # the name of a prompt that is given as text
# What the item of a list may do without in any prompt: its number or name, and a worked example its passages.
_OF_ITEMS = frozenset({"number", "index", "place", "step", "title", "passages"})


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed prompt file.

    ``identity`` (name, version and hash of the text) goes into the run's manifest. ``optional``: fields that
    a prompt in this one's place may leave out, of its sections or of its pieces. ``whole``: all of
    the reply is the answer.
    """

    name: str
    version: str
    sections: tuple[tuple[Section, str], ...]
    pieces: tuple[tuple[Piece, str], ...] = ()
    optional: frozenset[str] = frozenset()
    whole: bool = False

    @property
    def fields(self) -> frozenset[str]:
        """The fields of its sections."""
        return frozenset(field for _, body in self.sections for field in _FIELD.findall(body))

    @property
    def cites(self) -> bool:
        """Whether the answer is to cite passages by the numbers under which they are shown."""
        return self.whole and "{number}" in dict(self.pieces).get("passage", "")

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of its turns, in order; none if it is continued as it stands."""
        if any(role == "plain" for role, _ in self.sections):
            return ()
        return tuple(cast("Role", role) for role, _ in self.sections if role != "assistant")

    @property
    def _title(self) -> str:
        return "the prompt given as text" if self.name == INLINE else f"the prompt '{self.name}'"

    def require(self, fields: Iterable[str]) -> None:
        """Raise :class:`ConfigError` if the prompt does not use all of these fields."""
        if missing := sorted(set(fields) - self.fields):
            lacks = ", ".join(f"{{{field}}}" for field in missing)
            has = ", ".join(f"{{{field}}}" for field in sorted(self.fields)) or "none"
            raise ConfigError(
                f"{self._title} lacks {lacks} (its fields: {has}). What a field stands for reaches "
                "the model nowhere else: write it where it belongs."
            )

    def require_as(self, shipped_prompt: Template) -> None:
        """Raise :class:`ConfigError` if the prompt, or a piece of it, lacks a field that this one needs."""
        self.require(shipped_prompt.fields - shipped_prompt.optional)
        others = dict(shipped_prompt.pieces)
        for piece, body in self.pieces:
            needed_fields = set(_FIELD.findall(others.get(piece, ""))) - _OF_ITEMS - shipped_prompt.optional
            if missing := sorted(needed_fields - set(_FIELD.findall(body))):
                raise ConfigError(
                    f"{self._title} lacks {{{missing[0]}}} in its section '--- {piece}', which says how "
                    f"one {piece} is written: write {{{missing[0]}}} where it belongs."
                )

    @property
    def identity(self) -> str:
        """Name, version and content hash: two runs with equal identities asked in the same words."""
        text = "".join(f"{role}\n{body}" for role, body in (*self.sections, *self.pieces))
        return f"{self.name} v{self.version} {stable_hash(text)}"

    def render(self, values: Mapping[str, str | Sequence[Segment]]) -> Prompt:
        """Fill the fields with text or segments.

        Raises :class:`ConfigError` for a field that has no value.
        """
        messages: list[Message] = []
        prefix: list[Segment] = []
        for role, body in self.sections:
            segments = self._fill(body, values)
            if role == "plain":
                return Prompt.of_text(segments)
            if role == "assistant":
                prefix = segments
            else:
                messages.append(Message(cast("Role", role), tuple(segments)))
        beginning = "".join(segment.text for segment in prefix)
        return Prompt(tuple(messages), beginning, prefix_wording=joined_wording(prefix))

    def read_answer(self, reply: str) -> str:
        """Return the answer in a reply to this prompt."""
        return reply.strip() if self.whole else extract_answer(reply)

    def items(
        self, piece: Item, items: Sequence[Mapping[str, str]], ranks: Sequence[int] | None = None
    ) -> list[Segment]:
        """Write a list by its piece, one segment per item.

        In a prompt that is too long, the first items go first; ``ranks``, one for each item, have them go in
        rising order of these instead. Items may use ``{number}`` (from 1) and ``{index}`` (from 0). Raises
        :class:`ConfigError` if the prompt lacks the piece.
        """
        pieces = dict(self.pieces)
        # A segment carries its line break, so that leaving one out leaves no blank line behind.
        if not items:
            empty = pieces.get(_WHEN_EMPTY[piece], "") if piece in _WHEN_EMPTY else ""
            return [Segment(empty + "\n", wording=((0, len(empty)),))] if empty else []
        if piece not in pieces:
            raise ConfigError(
                f"prompt '{self.name}' has no section '--- {piece}', which says how one {piece} is written."
            )
        ranks = range(len(items)) if ranks is None else ranks
        filled_items = [
            self._fill(pieces[piece], _add_numbers(item, index)) for index, item in enumerate(items)
        ]
        return [
            Segment(
                "".join(part.text for part in parts) + "\n",
                drop_rank(piece, rank),
                piece,
                joined_wording(parts),
            )
            for parts, rank in zip(filled_items, ranks, strict=True)
        ]

    def with_missing_pieces(self, other: Template) -> Template:
        """Return the prompt with the other's way of writing those lists of which it says nothing itself."""
        return replace(self, pieces=tuple((dict(other.pieces) | dict(self.pieces)).items()))

    def _fill(self, body: str, values: Mapping[str, str | Sequence[Segment]]) -> list[Segment]:
        segments: list[Segment] = []
        for position, piece in enumerate(_FIELD.split(body)):  # text, field, text, field, ...
            if position % 2 == 0:
                if piece:
                    segments.append(Segment(piece, wording=((0, len(piece)),)))
            elif piece not in values:
                raise ConfigError(
                    f"prompt '{self.name}' uses the field {{{piece}}}, which is not offered here: "
                    f"{nearest(piece, values)}"
                )
            else:
                value = values[piece]
                segments.extend([Segment(value)] if isinstance(value, str) else value)
        return segments


def _add_numbers(item: Mapping[str, str], index: int) -> dict[str, str]:
    """Add the fields that count the items of a list."""
    return {**item, "number": str(index + 1), "index": str(index)}


def parse_template(name: str, text: str) -> Template:
    """Parse a prompt file's text. Raises :class:`ConfigError` naming what is wrong with it."""
    head, *parts = _HEADING.split(text.replace("\r\n", "\n"))
    version = re.search(r"^version:\s*(\S+)\s*$", head, re.MULTILINE)
    optional = re.search(r"^optional:(.*)$", head, re.MULTILINE)
    if version is None or not parts:
        raise ConfigError(
            f"prompt file '{name}' must begin with 'version: N' and have a section such as '--- user' or "
            "'--- plain'."
        )
    roles = parts[::2]
    headings = (*get_args(Section), *get_args(Piece))
    for role in roles:
        if role not in headings:
            raise ConfigError(f"prompt file '{name}' has the section '--- {role}': {nearest(role, headings)}")
    bodies = [body.removesuffix("\n") for body in parts[1::2]]
    texts = list(zip(roles, bodies, strict=True))
    sections = [(role, body) for role, body in texts if role in get_args(Section)]
    pieces = [(role, body) for role, body in texts if role in get_args(Piece)]
    if not any(role in ("user", "plain") for role, _ in sections):
        raise ConfigError(
            f"prompt file '{name}' has no section '--- user' or '--- plain': there is nothing to ask."
        )
    if len(sections) > 1 and any(role == "plain" for role, _ in sections):
        raise ConfigError(
            f"prompt file '{name}' mixes '--- plain' with other sections: a plain prompt stands alone."
        )
    return Template(
        name,
        version.group(1),
        cast("tuple[tuple[Section, str], ...]", tuple(sections)),
        cast("Any", tuple(pieces)),
        frozenset(re.findall(r"\w+", optional[1])) if optional else frozenset(),
        re.search(r"^reply:\s*whole\s*$", head, re.MULTILINE) is not None,
    )


@keep_read
def load_template(source: str, folder: Path) -> Template:
    """Load a prompt: the name of one shipped in ``folder``, a user's own file, or a user turn's text itself.

    A source that contains a brace or a line break is taken as text; it may have sections as a file has, and
    what stands before the first one is the user's turn. Raises :class:`ConfigError` if no such prompt exists.
    """
    if "{" in source or "\n" in source:  # no file that anybody means has such a name
        return _inline(source)
    path = folder / f"{source}.txt"
    if not path.is_file():
        path = Path(source)
    if not path.is_file():
        shipped_names = [file.stem for file in folder.glob("*.txt")]
        raise ConfigError(
            f"there is no prompt '{source}': give a file, a text with {{fields}}, or one of: "
            f"{', '.join(shipped_names)}."
        )
    return parse_template(path.stem, read_text(path))


def _inline(text: str) -> Template:
    whole = text if text.endswith("\n") else f"{text}\n"
    head, *sections = _HEADING.split(whole)
    if not sections:
        return Template(INLINE, "0", (("user", text),))
    turn, rest = re.sub(r"^version:.*\n", "", head).strip("\n"), whole[len(head) :]
    user_turn = f"--- user\n{turn}\n" if turn else ""
    return parse_template(INLINE, f"version: 0\n{user_turn}{rest}")


def load_prompt(source: str, shipped_name: str, folder: Path, needs: Iterable[str] = ()) -> Template:
    """Load a prompt as :func:`load_template` does.

    What it does not say about writing lists is as in the prompt ``shipped_name``. Raises :class:`ConfigError`
    also if it lacks a field of this one's that is not optional, or that an option ``needs``.
    """
    prompt, instead_of = load_template(source, folder), load_template(shipped_name, folder)
    prompt.require_as(instead_of)
    prompt.require(needs)
    return prompt.with_missing_pieces(instead_of)
