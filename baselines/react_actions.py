"""ReAct's actions: how one is read out of a reply, and what a lookup sees."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from core.sentences import sentence_end
from core.types import Hit, Passage

_OBSERVATION = re.compile(r"observation[ \t]*\d*[ \t]*:", re.IGNORECASE)
_THOUGHT_LABEL = re.compile(r"^\W*thought[ \t]*\d*[ \t]*:", re.IGNORECASE)
_ACTION_LABEL = re.compile(r"[*_`]*\baction[ \t]*\d*[ \t]*:\W*?(?=\w|$)", re.IGNORECASE)
_CALL = re.compile(r"\b(search|lookup|finish|think)\s?([\[(])", re.IGNORECASE)
_UNLABELLED = re.compile(
    r"(?=\b(?:search|lookup|finish)\[)|^(?=\W*(?:search|lookup|finish)\s?\()", re.IGNORECASE | re.MULTILINE
)
_MADE_UP = re.compile(r"(\w+)\s?([\[(])")


@dataclass(frozen=True, slots=True)
class Move:
    """What a reply says. ``name``: "search", "lookup", "finish", "think", a word the model made up, or "" without an action.

    ``thought``: what stands before the action, or all of it without one, line breaks included. ``argument``: the action's, or what
    was written where an action should be.
    """

    thought: str
    name: str
    argument: str

    @property
    def action(self) -> str:
        """The action as a transcript writes it."""
        return f"{self.name}[{self.argument}]" if self.name else self.argument


def parse_move(reply: str) -> Move:
    r"""Read thought and action out of a reply. Only the first action counts, and nothing from a made-up observation on.

    Brackets may be round or square; the argument reaches to the last closing one on the line. Without any action, all that was
    written is the thought.

    >>> parse_move("I need the author.\nAction 1: Search[The Glass Orchard (novel)]\nObservation 1: It is")
    Move(thought='I need the author.', name='search', argument='The Glass Orchard (novel)')
    """
    written = _OBSERVATION.split(reply, maxsplit=1)[0]
    found = [start for pattern in (_ACTION_LABEL, _UNLABELLED) for start in pattern.finditer(written)]
    starts = sorted(found, key=lambda start: start.start())
    for start in starts:  # a label that no call follows is a word of the thought
        line = written[start.end() :].strip().split("\n", 1)[0]
        if call := _CALL.search(line) or _MADE_UP.match(line):
            argument = line[call.end() :]
            if following := _CALL.search(argument):
                argument = argument[: following.start()]
            closing = argument.rfind("]" if call[2] == "[" else ")")
            argument = _bare(argument[:closing] if closing >= 0 else argument)
            return Move(_thought(written[: start.start()]), call[1].lower(), argument)
    if starts and not written[starts[-1].end() :].strip():
        written = written[: starts[-1].start()]  # a label, and nothing more
    return Move(_thought(written), "", "")


def _thought(text: str) -> str:
    return _THOUGHT_LABEL.sub("", text).strip()


def _bare(argument: str) -> str:
    """Take off white space and one pair of brackets or quotes around the whole argument."""
    argument = argument.strip()
    around = len(argument) >= 2 and argument[0] + argument[-1] in ("[]", '""', "''", "“”")
    inside = argument[1:-1]
    return inside.strip() if around and argument[0] not in inside and argument[-1] not in inside else argument


def sentences(text: str) -> list[str]:
    r"""Split a text into sentences; line breaks end them too.

    >>> sentences("J. R. Smith left. He came to St. Ives.\nThe end")
    ['J. R. Smith left.', 'He came to St. Ives.', 'The end']
    """
    found = []
    while end := sentence_end(text):
        found.append(text[:end].strip())
        text = text[end:]
    return found


class Library:
    """Every passage that the searches of a question have found, in order, with a finger on the sentence looked up last."""

    def __init__(self) -> None:
        self._passages: dict[str, Passage] = {}
        self._term = ""
        self._shown = 0

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the passages."""
        return tuple(self._passages)

    def add(self, hits: Iterable[Hit]) -> None:
        """Take in what a search found. Lookups begin anew (released code: a new page)."""
        self._passages.update((hit.passage.id, hit.passage) for hit in hits)
        self._term = ""

    def look_up(self, term: str) -> str:
        """Return the next sentence that holds the term, in any case, with its place among all of them and its title."""
        wanted = term.strip().casefold()
        if wanted != self._term:
            self._term, self._shown = wanted, 0
        found = [
            f"{passage.title}: {sentence}"
            for passage in self._passages.values()
            for sentence in sentences(passage.text)
            if wanted and wanted in sentence.casefold()
        ]
        if not found:
            return f"No sentence with '{term}' in what was found so far."
        if self._shown >= len(found):
            return "No more results."
        self._shown += 1
        return f"(Result {self._shown} / {len(found)}) {found[self._shown - 1]}"
