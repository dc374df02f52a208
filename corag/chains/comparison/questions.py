"""Questions that compare: which two, what of them, and which of the two is wanted.

The forms are 2WikiMultihopQA's, in English, word for word: a word that is not in them makes another question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from corag.chains.comparison.values import read_country, read_date


@dataclass(frozen=True, slots=True)
class Aspect:
    """What is compared.

    ``asked``: one of these words is in a sub-query for it. ``beside``: what else may stand there, and beside
    the value in a sub-answer. ``read``: takes the value out of a sub-answer that has no other words; None
    where there is none for certain.
    """

    name: str
    asked: frozenset[str]
    beside: frozenset[str]
    read: Callable[[str, frozenset[str]], Any]

    @property
    def words(self) -> frozenset[str]:
        """All that may stand beside a name or a value."""
        return self.asked | self.beside


@dataclass(frozen=True, slots=True)
class Task:
    """A question that compares: its candidates, what of them, and how.

    ``want``: "earlier", "later", "more" or "same". ``role``: of those who are compared in place of the
    candidates, such as "director"; "" for the candidates themselves. ``nouns``: what the question calls them.
    """

    candidates: tuple[str, str]
    aspect: Aspect
    want: str
    role: str = ""
    nouns: frozenset[str] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DATE_WORDS = _words(
    "when what which was is were did the a in on at of it he she they his her its date day year exact exactly"
)
BIRTH = Aspect("birth", _words("born birth birthday birthdate"), _DATE_WORDS, read_date)
DEATH = Aspect("death", _words("die died dies death passed pass"), _DATE_WORDS | {"away"}, read_date)
_EVENTS = tuple(
    _words(text)
    for text in (
        "released release releases published publication premiered premiere came come out",
        "formed founded established started created launched began incorporated formation founding",
        "built constructed",
        "opened open",
        "made produced",
    )
)
AGE = Aspect("age", BIRTH.asked.union(*_EVENTS), _DATE_WORDS, read_date)  # of a film, a band, a building
LIFE = Aspect("life", frozenset(), frozenset(), read_date)  # of a birth and a death
COUNTRY = Aspect(
    "country",
    _words(
        "country nation nationality citizenship citizen origin originate originates originated from located"
    ),
    _words("what which where is was are does did do the a of for in it he she also come comes came"),
    read_country,
)
NOUNS = _words("film movie song album magazine band")
"""What may stand before a name in any sub-query."""

ROLES = {
    role: _words(words)
    for role, words in {
        "director": "director directors directed",
        "author": "author authors wrote written",
        "composer": "composer composers composed",
        "performer": "performer performers performed sings sang singer artist",
        "singer": "singer singers sings sang performed",
        "writer": "writer writers wrote written",
        "screenwriter": "screenwriter screenwriters wrote written",
        "producer": "producer producers produced",
        "founder": "founder founders founded",
        "creator": "creator creators created",
    }.items()
}
"""Who may be compared in place of a work, and what a sub-query for them has in it."""

_ROLE = "|".join(ROLES)
_EVENT = "|".join(sorted(set().union(*_EVENTS) - {"out"}))
_STEM = (
    rf"(?: (?:is|was|are|were))?(?: (?P<event>born|died|passed away|lived|(?:{_EVENT})(?: out)?))?(?: the)? "
    r"(?P<how>first|earlier|earliest|later|latest|(?:more|most) recently|longer|oldest|older|young(?:er|est))"
)
_NOUN = r"(?: (?!(?:almost|is|was|are|were|has|had|did|to|of|that|who|\w*ly)\b)[\w-]+){0,3}?"
_WHICH = re.compile(  # Which film came out first, A or B? Which film has the director who is older, A or B?
    rf"(?:[Ww]ho|[Ww](?:hich|hat)(?P<noun>{_NOUN})"
    rf"(?: has the (?P<role>{_ROLE})(?: who| that)?| whose (?P<whose>{_ROLE}))?)"
    rf"{_STEM}(?: than the other)?(?P<of>(?: out)? of|,? between)?[,:]? (?P<pair>[^a-z\s].*)"
)
_WAS = re.compile(rf"(?:Was|Is|Did) (?P<pair>.+ or .+?){_STEM}")  # Was A or B born first?
_SAME = re.compile(  # Are A and B from the same country? Do A and B share the same nationality?
    r"(?:Are|Were|Is|Do|Did|Does) (?P<pair>.+) same (?:country|nationality)(?: of (?:origin|citizenship))?"
)
_TWO = re.compile(r"\b(?:both|located|situated)\b")
_SAME_AS = re.compile(r"Does (?P<first>.+) have the same nationality as (?P<second>.+)")
_TAIL = re.compile(  # what stands between the candidates and "same"
    r",? (?:both|films|movies|located|situated|from|of|in|the|that|who|are|shares?|have|has|originated?|come|"
    rf"came|(?P<role>(?:{_ROLE})s?)),?$"
)
_FRONT = re.compile(  # what stands before a candidate there; of "both villages, A and B" the noun, too
    rf"(?:both [a-z][a-z ]*[,:]|(?P<role>(?:{_ROLE})s?)|both|the|of|films?|movies?|bands?|songs?) "
)
# Small letters alone: in titles they are names.
_NEGATION = re.compile(r"\b(?:not|never|neither|nor|except|[a-z]+n['’]t)\b")
_CLAUSE = re.compile(
    r"[,;] [a-z]|, .+ and |[?;] |\b(?:wh(?:en|o|om|ose|ich|ere|ile)|that|if|than|because|according|was|were|"
    r"is|are|did|does|do|had|has|have|born|died)\b|['’]s? [a-z]+$"
)


def read_tasks(question: str) -> Iterator[Task]:
    """Yield the comparisons that a question may be; none for a question of another kind."""
    text = " ".join(question.split()).rstrip("?. ")
    if _NEGATION.search(text):
        return
    if match := _SAME_AS.fullmatch(text):
        first, second = match["first"], match["second"]
        if _is_name(first) and _is_name(second) and not _splits(second, "or"):
            yield Task((first, second), COUNTRY, "same")
    elif match := _SAME.fullmatch(text):
        tasks = [*_read_same(match["pair"])]
        # "A, B and C" are three, but for "both" and for places, which are called by their province too.
        is_list = len(tasks) == 1 and ", " in tasks[0].candidates[0] and not _TWO.search(text)
        yield from () if is_list else tasks
    elif match := _WHICH.fullmatch(text) or _WAS.fullmatch(text):
        parts = {"noun": None, "role": None, "whose": None, "of": None, **match.groupdict()}
        role = parts["role"] or parts["whose"] or ""
        aspect, want = _read_want(parts["event"], parts["how"] or "", bool(role) or parts["noun"] is None)
        pairs = _splits(match["pair"], "and" if parts["of"] else "or")
        for first, second in pairs:
            is_list = len(pairs) == 1 and ", " in first  # "A, B or C"; of several readings none is taken
            if aspect and _is_name(first) and _is_name(second) and not is_list:
                yield Task((first, second), aspect, want, role, _words((parts["noun"] or "").lower()))


def _read_want(event: str | None, how: str, of_person: bool) -> tuple[Aspect | None, str]:
    """Return what is compared and which of the two is wanted; None where the question does not tell."""
    if (event == "lived") != (how == "longer"):
        return None, ""
    want = "later" if how.endswith(("later", "latest", "recently")) or how.startswith("young") else "earlier"
    if event == "lived":
        return LIFE, "more"
    if how.startswith(("old", "young")):
        return None if event else BIRTH if of_person else AGE, want
    if event in ("born", "died", "passed away"):
        return BIRTH if event == "born" else DEATH, want
    words = next((words for words in _EVENTS if event and event.split()[0] in words), None)
    return Aspect("date", words, _DATE_WORDS, read_date) if words else None, want


def _read_same(pair: str) -> Iterator[Task]:
    """Yield the readings of what is between "Are" and "same country", one for each "and"."""
    roles = list[str]()
    while tail := _TAIL.search(pair):
        roles += [tail["role"]] if tail["role"] else []
        pair = pair[: tail.start()]
    while front := _FRONT.match(pair):
        roles += [front["role"]] if front["role"] else []
        pair = pair[front.end() :]
    for first, second in _splits(pair, "and"):
        of_both = list(roles)
        while front := _FRONT.match(second):
            of_both += [front["role"]] if front["role"] else []
            second = second[front.end() :]
        # "directors of A and B", "director of A and director of B"; not "director of A and B".
        role = of_both[0].removesuffix("s") if of_both else ""
        if of_both not in ([], [f"{role}s"], [role, role]):
            continue
        if _is_name(first) and _is_name(second) and not re.search(r" [a-z]\w*$", second):
            yield Task((first, second), COUNTRY, "same", role)


def _is_name(text: str) -> bool:
    """Whether a candidate may be what the answer is called, neither described nor followed by a clause."""
    return bool(text) and not text[0].islower() and not _CLAUSE.search(text)


def _splits(pair: str, word: str) -> list[tuple[str, str]]:
    return [
        (pair[: match.start()].strip(" ,"), pair[match.end() :].strip(" ,"))
        for match in re.finditer(rf"\s{word}\s", pair)
    ]
