"""Comparisons computed: the answer to a question that chooses between two, from a chain's sub-answers.

Small models find two dates and then guess which is the earlier. Where a question names two candidates and
asks which is older or later or lived longer, or whether they share a country, and the sub-answers give a
value of each, the answer is computed. Questions, sub-queries and sub-answers are read word for word: one word
that a rule does not know, and the model answers. English only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from corag.chains.chain import Hop
from corag.chains.comparison.questions import (
    BIRTH,
    COUNTRY,
    DEATH,
    LIFE,
    NOUNS,
    ROLES,
    Aspect,
    Task,
    read_tasks,
)
from corag.chains.comparison.values import Date, plain, plain_words

_ASKS_FOR_BEARER = frozenset("who is was are were the of by".split())
LIFE_ERROR = 6.0  # days: lengths of lives are counted by months of one length
LONGEST_LIFE = 120 * 366.0
_BRACKETS = re.compile(r"\([^()]*\)")
_CAPITAL = r"[^\W\d_a-z]"
_PERSON = re.compile(
    rf"(?!(?:Unknown|None|No|Yes|Not|Various|Anonymous)\b){_CAPITAL}[\w.'’-]*"
    rf"(?: (?:{_CAPITAL}[\w.'’-]*|de|del|della|di|da|dos|du|van|von|der|den|bin|ibn|al|el|la|le|of|the|y))*"
    r"(?: \([^()]*\))?"
)


@dataclass(frozen=True, slots=True)
class ComputedAnswer:
    """What an answer was computed from.

    ``rule``: how, such as "earlier birth" or "same country". ``candidates``: the two, as the question writes
    them. ``values``: the sub-answers that were compared, in their order.
    """

    rule: str
    candidates: tuple[str, str]
    values: tuple[str, str]
    answer: str


def compare(question: str, hops: Sequence[Hop]) -> ComputedAnswer | None:
    """Return the answer that follows from a chain's hops, and what from; None where none does for certain.

    A question may be read in several ways ("A and B and C"): they must not contradict each other.
    """
    results = [each for task in read_tasks(question) if (each := _decide(task, hops)) is not None]
    return results[0] if len({each.answer for each in results}) == 1 else None


def next_sub_query(question: str, hops: Sequence[Hop]) -> str | None:
    """Return what to ask for a value of the second candidate, where the chain has one of the other alone.

    It is what the chain asked about the first, with the names exchanged; None where that is not to be had.
    """
    tasks = list(read_tasks(question))
    if len(tasks) != 1:
        return None
    earlier = {plain(hop.sub_query) for hop in hops}
    for aspect in (BIRTH, DEATH) if tasks[0].aspect is LIFE else (tasks[0].aspect,):
        first, second = _follow(tasks[0], aspect, hops)
        for one, other in ((first, second), (second, first)):
            if one.value() and not other.values:
                to_do = one.sub_queries if other.bearers else one.bearer_sub_queries + one.sub_queries
                sub_queries = (_swap(step, one, other) for step in to_do)
                if new := next((each for each in sub_queries if each and plain(each) not in earlier), None):
                    return new
    return None


def _swap(step: tuple[str, str], one: _Candidate, other: _Candidate) -> str | None:
    """Return a sub-query about one candidate as one about the other, None if that is not possible yet."""
    sub_query, name = step
    to = next(iter(other.bearers), "") if name in one.bearers else other.names[0]
    result, count = re.subn(_shape(name), lambda match: to, sub_query, count=1, flags=re.IGNORECASE)
    return result if to and count else None


@dataclass
class _Candidate:
    """A candidate: what it is called, what the bearer of its role is called, and its values so far.

    ``told_bearers``: None for a sub-answer that names no one person for certain. ``values``: each with the
    sub-answer that says it, None for one that says none for certain. ``sub_queries``: the sub-queries for the
    values, with the name in each; ``bearer_sub_queries``: those for the bearer.
    """

    names: list[str]
    told_bearers: list[str | None] = field(default_factory=list)
    values: list[tuple[Any, str]] = field(default_factory=list)
    sub_queries: list[tuple[str, str]] = field(default_factory=list)
    bearer_sub_queries: list[tuple[str, str]] = field(default_factory=list)

    @property
    def bearers(self) -> list[str]:
        return [bearer for bearer in self.told_bearers if bearer]

    def value(self) -> tuple[Any, str] | None:
        """Return what the hops agree on, with the first sub-answer that says it."""
        if not self.values or len({bearer and plain(bearer) for bearer in self.told_bearers}) > 1:
            return None
        first = self.values[0]
        sure = first[0] is not None and all(_agree(each, first[0]) for each, _ in self.values)
        return first if sure else None


def _agree(one: Any, other: Any) -> bool:
    return one is not None and (one.overlaps(other) if isinstance(one, Date) else bool(one == other))


def _decide(task: Task, hops: Sequence[Hop]) -> ComputedAnswer | None:
    if task.aspect is LIFE:
        births, deaths = _values(task, BIRTH, hops), _values(task, DEATH, hops)
        values = [_life(*each) for each in zip(births, deaths, strict=True)]
    else:
        values = _values(task, task.aspect, hops)
    first, second = values
    if first is None or second is None:
        return None
    answer = _answer(task, first[0], second[0])
    if not answer:
        return None
    return ComputedAnswer(f"{task.want} {task.aspect.name}", task.candidates, (first[1], second[1]), answer)


def _values(task: Task, aspect: Aspect, hops: Sequence[Hop]) -> list[tuple[Any, str] | None]:
    """Return what the hops say of each candidate, with the sub-answer."""
    return [candidate.value() for candidate in _follow(task, aspect, hops)]


def _follow(task: Task, aspect: Aspect, hops: Sequence[Hop]) -> list[_Candidate]:
    """Return the candidates with what the hops say of each, or of its role's bearer if it has a role.

    Bearers are followed: a director's date belongs to the film that an earlier hop gave the director of.
    """
    candidates = [_Candidate(_names(name)) for name in task.candidates]
    role = ROLES.get(task.role, frozenset())
    for hop in hops:
        finds = [_find(hop.sub_query, candidate, task, aspect, role) for candidate in candidates]
        if hop.refused or len({plain(name) for name, _ in filter(None, finds)}) > 1:
            continue
        for candidate, find in zip(candidates, finds, strict=True):
            if find and find[1]:
                candidate.values.append(
                    (aspect.read(_without(candidate, hop.sub_answer), aspect.words | role), hop.sub_answer)
                )
                candidate.sub_queries.append((hop.sub_query, find[0]))
            elif find:
                candidate.told_bearers.append(_bearer(hop.sub_answer, candidate, role))
                candidate.bearer_sub_queries.append((hop.sub_query, find[0]))
    return candidates


def _find(
    sub_query: str, candidate: _Candidate, task: Task, aspect: Aspect, role: frozenset[str]
) -> tuple[str, bool] | None:
    """Return the name by which a sub-query asks of a candidate, and whether for its value or for its bearer.

    None where it asks for something else, or of something else: every word beside the name is a known one.
    """
    for name in (*candidate.bearers, *candidate.names):
        # A film's brackets tell it from another one; a director's say who he is.
        text = plain(_BRACKETS.sub(" ", sub_query) if name in candidate.bearers else sub_query)
        before, found, after = f" {text} ".partition(f" {plain(name)} ")
        if not found:
            continue
        front, back = set(before.split()) - NOUNS - task.nouns, set(after.split())
        of_role = role & (front | back)
        words = front | back
        if (
            words <= aspect.words | role
            and words & aspect.asked
            and (name in candidate.bearers or bool(of_role) == bool(role))
        ):
            return name, True
        if of_role and name in candidate.names and words <= role | _ASKS_FOR_BEARER:
            return name, False
    return None


def _bearer(sub_answer: str, candidate: _Candidate, role: frozenset[str]) -> str | None:
    """Return a sub-answer's name: "The director of it is Kurt Land.", "Kurt Land directed it." or a name.

    None where it names no one person for certain.
    """
    words = role | _ASKS_FOR_BEARER | NOUNS | {"it", "a"}
    parts = re.split(
        rf"\b(?:{'|'.join(sorted(words - {'of', 'the', 'a'}))})\b", _without(candidate, sub_answer)
    )
    persons = [part for part in (part.strip(" .") for part in parts) if not set(plain_words(part)) <= words]
    sure = len(persons) == 1 and _PERSON.fullmatch(persons[0])
    return _BRACKETS.sub("", persons[0]).strip() if sure else None


def _without(candidate: _Candidate, sub_answer: str) -> str:
    """Return a sub-answer without the candidate's names: there are dates and countries in some."""
    for name in (*candidate.names, *candidate.bearers):
        sub_answer = re.sub(rf"{_shape(name)}(?:['’]s?)?", " ", sub_answer, flags=re.IGNORECASE)
    return sub_answer


def _shape(name: str) -> str:
    """Return a pattern of a name, whatever marks are between its words."""
    words = r"[\W_]*".join(map(re.escape, re.findall(r"\w+", name)))
    return rf"\b{words}\b{'[)]?' if name.endswith(')') else ''}"


def _names(title: str) -> list[str]:
    """Return what a candidate may be called in a sub-query: with and without brackets."""
    return [title, *([bare] if (bare := _BRACKETS.sub("", title).strip()) not in ("", title) else [])]


def _answer(task: Task, first: Any, second: Any) -> str:
    """Return the answer that two values give; "" where they do not tell, such as two days of one year."""
    if task.aspect is COUNTRY:
        return "yes" if first == second else "" if first & second else "no"
    if isinstance(first, Date):
        smaller = None if first.overlaps(second) else first.last < second.first
    else:
        alike = first[0] <= second[1] + LIFE_ERROR and second[0] <= first[1] + LIFE_ERROR
        smaller = None if alike else first[1] < second[0]
    if smaller is None:
        return ""
    return task.candidates[0 if smaller == (task.want == "earlier") else 1]


def _life(birth: tuple[Date, str] | None, death: tuple[Date, str] | None) -> tuple[Any, str] | None:
    """Return the least and the most days of a life, about, with both sub-answers; None if none is so long."""
    if birth is None or death is None:
        return None
    least, most = _days(death[0].first) - _days(birth[0].last), _days(death[0].last) - _days(birth[0].first)
    return ((least, most), f"{birth[1]} - {death[1]}") if most >= 0 and least < LONGEST_LIFE else None


def _days(date: tuple[int, int, int]) -> float:
    year, month, day = date
    return 365.25 * year + 30.5 * month + day
