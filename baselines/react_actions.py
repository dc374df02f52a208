"""ReAct's actions: how one is read out of a reply."""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.text import extract_answer, stated_answer

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
    """What a reply says.

    ``name``: "search", "lookup", "finish", "think", a word the model made up, or "" without an action.

    ``thought``: what stands before the action, or all of it without one, line breaks included. ``argument``:
    the action's, or what was written where an action should be.
    """

    thought: str
    name: str
    argument: str

    @property
    def action(self) -> str:
        """The action as a transcript writes it."""
        return f"{self.name}[{self.argument}]" if self.name else self.argument


def parse_move(reply: str) -> Move:
    r"""Read thought and action out of a reply.

    Only the first action counts, and nothing from a made-up observation on.

    Brackets may be round or square; the argument reaches to the last closing one on the line, or before a
    second action behind the bracket that closes the first. Without any action, all that was written is the
    thought.

    >>> parse_move("I need the author.\nAction 1: Search[The Glass Orchard (novel)]\nObservation 1: It is")
    Move(thought='I need the author.', name='search', argument='The Glass Orchard (novel)')
    """
    written = _OBSERVATION.split(reply, maxsplit=1)[0]
    found = [start for pattern in (_ACTION_LABEL, _UNLABELLED) for start in pattern.finditer(written)]
    starts = sorted(found, key=lambda start: start.start())
    for start in starts:  # a label that no call follows is a word of the thought
        line = written[start.end() :].strip().split("\n", 1)[0]
        if call := _CALL.search(line) or _MADE_UP.match(line):
            return Move(
                _thought(written[: start.start()]), call[1].lower(), _argument(line[call.end() :], call[2])
            )
    if starts and not written[starts[-1].end() :].strip():
        written = written[: starts[-1].start()]  # a label, and nothing more
    return Move(_thought(written), "", "")


def answer_without_action(response: str) -> str:
    r"""Return what a line of a response states as the answer, else all of the response, joined by spaces.

    >>> answer_without_action("The Glass Orchard\nis by Mara Velden.")
    'The Glass Orchard is by Mara Velden'
    """
    stated = any(stated_answer(line) is not None for line in response.splitlines())
    return extract_answer(response if stated else " ".join(response.split()))


def _thought(text: str) -> str:
    return _THOUGHT_LABEL.sub("", text).strip()


def _argument(rest: str, opening: str) -> str:
    """Cut the argument out of what follows the opening bracket of an action."""
    closing = "]" if opening == "[" else ")"
    # within an argument, such a word is one of a title: "The Search (film)"
    for following in _CALL.finditer(rest):
        before = rest[: following.start()]
        if before.count(closing) > before.count(opening):
            rest = before
            break
    end = rest.rfind(closing)
    return _bare(rest[:end] if end >= 0 else rest)


def _bare(argument: str) -> str:
    """Take off white space and one pair of brackets or quotes around the whole argument."""
    argument = argument.strip()
    around = len(argument) >= 2 and argument[0] + argument[-1] in ("[]", '""', "''", "“”")
    inside = argument[1:-1]
    return inside.strip() if around and argument[0] not in inside and argument[-1] not in inside else argument
