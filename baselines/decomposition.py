"""Plans of sub-questions that depend on each other, read from a model's reply: written as lines, checked as a
graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from baselines.recursive_replies import MARKS, clean
from core.text import is_nothing

_PART = re.compile(
    rf"^{MARKS}(?P<label>sub(?:[ _-]?(?:question|query))?|q(?:uestion)?)?[ _#-]*(?P<number>\d{{1,2}})(?!\d)"
    rf"{MARKS}(?P<mark>[:)\]]|\.(?!\d))?(?P<text>.*)$",
    re.IGNORECASE,
)
_NEEDS = re.compile(rf"^{MARKS}depends(?:[ _]on)?{MARKS}[:=]?(?P<value>.*)$", re.IGNORECASE)
_WITHIN_A_LINE = re.compile(
    r"[\s(\[;,]+(?=[*_]*(?:DEPENDS|depends)(?:[ _](?:ON|on))?[*_]*\s*:)|\s+(?=SUB ?\d{1,2}\s*:)"
)
_REFERENCE = re.compile(r"(?:#|\bSUB[ _-]?)(\d{1,2})\b")


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """A sub-question.

    ``needs``: numbers of those whose answers it waits for, whether named in a list or, as "#1", in its text.

    A number in the text that is no other sub-question's is a word like others.
    """

    number: int
    text: str
    needs: tuple[int, ...] = ()

    def asked(self, answers: Mapping[int, str]) -> str:
        """Return the text with the answers that it needs: each where its number stands, the others behind it
        in brackets.

        >>> SubQuestion(2, "Where was #1 born?", (1,)).asked({1: "Jane Austen"})
        'Where was Jane Austen born?'
        """
        named = set(mentioned(self.text)).intersection(self.needs)
        text = _REFERENCE.sub(
            lambda found: answers[int(found[1])] if int(found[1]) in named else found[0], self.text
        )
        others = [answers[number] for number in self.needs if number not in named]
        return f"{text} ({'; '.join(others)})" if others else text


@dataclass(frozen=True, slots=True)
class Plan:
    """Sub-questions in waves: each waits for earlier waves only, so those of one wave can be answered at the
    same time.

    ``problem``: why the plan is refused, "malformed" (no sub-question), "unknown_reference" or "cycle"; then
    there are no waves. ``ignored``: lines that should have been a sub-question and were not.
    """

    waves: tuple[tuple[SubQuestion, ...], ...] = ()
    problem: str = ""
    ignored: int = 0

    @property
    def parts(self) -> tuple[SubQuestion, ...]:
        """All sub-questions, wave by wave."""
        return tuple(part for wave in self.waves for part in wave)


def parse_plan(reply: str, limit: int) -> Plan:
    r"""Read "SUBn: question" lines, or a numbered list, each perhaps followed by a line "DEPENDS: SUB1,
    SUB2".

    A sub-question without text, a repeated number, and what comes after the first ``limit`` are ignored, and
    counted. A list may name what does not exist, and the plan is refused; a "#1" in a text then is a word
    ("the #1 single of 1985").

    >>> parse_plan("1. Who wrote Emma?\n2. Where was #1 born?", 5).waves[1]
    (SubQuestion(number=2, text='Where was #1 born?', needs=(1,)),)
    """
    parts: dict[int, SubQuestion] = {}
    # the sub-question that a line of dependencies belongs to; None after an ignored one
    newest: int | None = None
    ignored = 0
    for line in _WITHIN_A_LINE.sub("\n", reply).splitlines():
        if match := _NEEDS.match(line):
            if newest is not None:
                named = tuple(map(int, re.findall(r"\d+", match["value"])))
                parts[newest] = replace(parts[newest], needs=(*parts[newest].needs, *named))
        elif (match := _PART.match(line)) and (
            match["mark"] or (match["label"] or "").lower().startswith("sub")
        ):
            number, text = int(match["number"]), clean(match["text"])
            newest = None
            if is_nothing(text) or number in parts or len(parts) >= limit:
                ignored += 1
                continue
            newest = number
            parts[number] = SubQuestion(number, text)
    complete = []
    for part in parts.values():
        others = (number for number in mentioned(part.text) if number in parts and number != part.number)
        complete.append(replace(part, needs=tuple(dict.fromkeys((*part.needs, *others)))))
    return replace(in_waves(complete), ignored=ignored)


def mentioned(text: str) -> tuple[int, ...]:
    """Return the numbers that stand in a text as those of sub-questions do, "#1" or "SUB1"."""
    return tuple(int(number) for number in _REFERENCE.findall(text))


def in_waves(parts: Sequence[SubQuestion]) -> Plan:
    """Sort sub-questions by what they wait for (Kahn's algorithm, a layer at a time).

    Refuse what cannot be answered so.
    """
    if not parts:
        return Plan(problem="malformed")
    numbers = {part.number for part in parts}
    if any(need not in numbers for part in parts for need in part.needs):
        return Plan(problem="unknown_reference")
    waves: list[tuple[SubQuestion, ...]] = []
    done: set[int] = set()
    waiting = list(parts)
    while waiting:
        wave = tuple(part for part in waiting if done.issuperset(part.needs))
        if not wave:
            return Plan(problem="cycle")
        waves.append(wave)
        done.update(part.number for part in wave)
        waiting = [part for part in waiting if part.number not in done]
    return Plan(tuple(waves))
