"""Comparisons computed: the answer to a question that chooses between two, from a chain's sub-answers.

Small models find two dates and then guess which is the earlier. Where a question names two candidates and
asks which is older or later or lived longer, or whether they share a country, and the sub-answers give a
value of each, the answer is computed; where anything is unclear, nothing is. English only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rapidfuzz import fuzz

from corag.chains.chain import Hop
from corag.chains.comparison.questions import (
    BIRTH,
    COUNTRY,
    CREATION_WORDS,
    DEATH,
    LIFE,
    ROLES,
    Aspect,
    Task,
    read_tasks,
    words_pattern,
)
from corag.chains.comparison.values import Date, plain

LEAST_LIKENESS = 90.0  # of 100: of a name and its like in a sub-query (partial ratio of letters)
_RELATIVES = words_pattern(
    r"wi(?:fe|ves)|husbands?|spouses?|widow(?:er)?|fianc\w+|partner|(?:step|grand)?(?:father|mother|son|daughter)s?|"
    r"(?:grand)?parents?|(?:grand)?child(?:ren)?|(?:step)?(?:brother|sister)s?|siblings?|twin|uncle|aunt|nephew|"
    r"niece|cousin"
)
_PROPERTY_WORDS = words_pattern("date|year|day|time|place|exact|home")  # "A's date of birth"
_ROLE_WORDS = words_pattern(rf"{'|'.join(ROLES.values())}|it|films?|the")
# "When did Ana found Oat?" is about Oat; "When did Oat open in Lima?" is not.
_MAKES = re.compile(
    rf"\bdid\b.*?\b(?:{CREATION_WORDS})\s+(?!(?:in|on|at|to|for|from|by|as)\b)\w", re.IGNORECASE
)
LIFE_ERROR = 6.0  # days: lengths of lives are counted by months of one length


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


def _swap(step: tuple[str, str, bool], one: _Candidate, other: _Candidate) -> str | None:
    """Return a sub-query about one candidate as one about the other, None if that is not possible yet."""
    sub_query, name, by_bearer = step
    to = next(iter(other.bearers), "") if by_bearer else other.names[0]
    spelling = next(each for each in (one.bearers if by_bearer else one.names) if plain(each) == name)
    result, count = re.subn(_shape(spelling), lambda match: to, sub_query, count=1, flags=re.IGNORECASE)
    return result if to and count else None


@dataclass
class _Candidate:
    """A candidate: what it is called, what the bearer of its role is called, and its values so far.

    ``sub_queries``: the sub-queries for the values, with the name in each and whether it is the bearer's;
    ``bearer_sub_queries``: those for the bearer.
    """

    names: list[str]
    bearers: list[str] = field(default_factory=list)
    values: list[tuple[Any, str]] = field(default_factory=list)
    sub_queries: list[tuple[str, str, bool]] = field(default_factory=list)
    bearer_sub_queries: list[tuple[str, str, bool]] = field(default_factory=list)

    def value(self) -> tuple[Any, str] | None:
        """Return what the hops agree on, with the first sub-answer that says it."""
        first = self.values[0] if self.values else None
        return first if first and all(_agree(each, first[0]) for each, _ in self.values) else None


def _agree(one: Any, other: Any) -> bool:
    return one.overlaps(other) if isinstance(one, Date) else one == other


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
    role = words_pattern(ROLES.get(task.role, "|".join(f"{role} of" for role in ROLES)))
    for hop in hops:
        for candidate, by_bearer, name, words in (
            [] if hop.refused else _owners(plain(hop.sub_query), candidates)
        ):
            of_role = bool(role.search(words))
            if _asks_of_another(hop.sub_query, words, candidate, name, aspect, role):
                continue
            is_about_aspect = aspect.pattern.search(words) and not aspect.other.search(words)
            if is_about_aspect and (by_bearer or of_role if task.role else not of_role):
                if (value := aspect.read(_without(task.candidates, hop.sub_answer))) is not None:
                    candidate.values.append((value, hop.sub_answer))
                    candidate.sub_queries.append((hop.sub_query, name, by_bearer))
            elif task.role and of_role and not by_bearer:
                # "The director of it is Kurt Land.", "Kurt Land is the director." or only the name.
                parts = [part.strip(" .") for part in re.split(r"\b(?:is|was|by)\b", hop.sub_answer)]
                bearers = [part for part in parts if part and not _ROLE_WORDS.search(part)]
                candidate.bearers += bearers if len(bearers) == 1 else []
                candidate.bearer_sub_queries.append((hop.sub_query, name, by_bearer))
    return candidates


def _asks_of_another(
    sub_query: str, words: str, candidate: _Candidate, name: str, aspect: Aspect, role: re.Pattern[str]
) -> bool:
    """Whether a sub-query is about somebody or something of a candidate's: "When was A's wife born?"."""
    if _RELATIVES.search(aspect.pattern.sub(" ", words)) or _MAKES.search(words):
        return True
    spelling = next((each for each in (*candidate.names, *candidate.bearers) if plain(each) == name), name)
    possession = re.search(rf"{_shape(spelling)}['’]s?\s+(\w+)", sub_query, re.IGNORECASE)
    return possession is not None and not any(
        each.search(possession[1]) for each in (aspect.pattern, _PROPERTY_WORDS, role)
    )


def _without(names: Sequence[str], sub_answer: str) -> str:
    """Return a sub-answer without the candidates' names: there are dates and countries in some."""
    for name in names:
        sub_answer = re.sub(_shape(name), " ", sub_answer, flags=re.IGNORECASE)
    return sub_answer


def _shape(name: str) -> str:
    """Return a pattern of a name, whatever marks are between its words."""
    words = r"[\W_]*".join(map(re.escape, re.findall(r"\w+", name)))
    return rf"\b{words}\b{'[)]?' if name.endswith(')') else ''}"


def _names(title: str) -> list[str]:
    """Return what a candidate may be called in a sub-query: with and without brackets."""
    return [title, *([bare] if (bare := re.sub(r"\(.*?\)", "", title).strip()) not in ("", title) else [])]


def _owners(text: str, candidates: Sequence[_Candidate]) -> list[tuple[_Candidate, bool, str, str]]:
    """Return whom a sub-query is about, whether by the bearer's name, that name, and the words beside it.

    One candidate, or both where they have the same bearer; none where it names both, or neither.
    """
    finds = []
    for candidate in candidates:
        matches = [
            (alike, len(name), name, by_bearer)
            for by_bearer, names in ((False, candidate.names), (True, candidate.bearers))
            for name in map(plain, names)
            if name and (alike := _alike(name, text)) >= LEAST_LIKENESS
        ]
        finds.append(max(matches, default=None))
    first, second = finds
    if first is None and second is None:
        return []
    if first and second and first[2] != second[2]:
        # One name within the other, or one that is spelt exactly and another that is alike, tells them apart.
        if (first[0] == 100) != (second[0] == 100) or first[2] in second[2] or second[2] in first[2]:
            winner = int(second[:2] > first[:2])
            finds[1 - winner] = None
        else:
            return []
    return [
        (candidate, match[3], match[2], f" {text} ".replace(f" {match[2]} ", " ", 1))
        for candidate, match in zip(candidates, finds, strict=True)
        if match
    ]


def _alike(name: str, text: str) -> float:
    """Return how alike a name and a part of a text are, of 100; short names must be there as they are."""
    if f" {name} " in f" {text} ":
        return 100.0
    return min(fuzz.partial_ratio(name, text), 99.0) if 8 <= len(name) <= len(text) else 0.0


def _answer(task: Task, first: Any, second: Any) -> str:
    """Return the answer that two values give; "" where they do not tell, such as two days of one year."""
    if task.aspect is COUNTRY:
        return "yes" if (first == second) == (task.want == "same") else "no"
    if isinstance(first, Date):
        smaller = None if first.overlaps(second) else first.last < second.first
    else:
        alike = first[0] <= second[1] + LIFE_ERROR and second[0] <= first[1] + LIFE_ERROR
        smaller = None if alike else first[1] < second[0]
    if smaller is None:
        return ""
    first_wins = smaller == (task.want in ("earlier", "less"))
    if task.yes_or_no:
        return "yes" if first_wins else "no"
    return task.candidates[0 if first_wins else 1]


def _life(birth: tuple[Date, str] | None, death: tuple[Date, str] | None) -> tuple[Any, str] | None:
    """Return the least and the most days of a life, about, with both sub-answers."""
    if birth is None or death is None:
        return None
    least, most = _days(death[0].first) - _days(birth[0].last), _days(death[0].last) - _days(birth[0].first)
    return (least, most), f"{birth[1]} - {death[1]}"


def _days(date: tuple[int, int, int]) -> float:
    year, month, day = date
    return 365.25 * year + 30.5 * month + day
