"""Questions that compare: which two, what of them, and which of the two is wanted. English only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from corag.chains.comparison.values import Date, read_country, read_date


@dataclass(frozen=True, slots=True)
class Aspect:
    """What is compared.

    ``pattern``: is in a sub-query for it; ``other``: is not. ``read``: takes the value out of a sub-answer,
    None where it has none.
    """

    name: str
    pattern: re.Pattern[str]
    read: Callable[[str], Any]
    other: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Task:
    """A question that compares: its candidates, what of them, and how.

    ``want``: "earlier", "later", "less", "more", "same" or "different". ``role``: of those who are compared
    in place of the candidates, such as "director"; "" for the candidates themselves. ``yes_or_no``: whether
    the question is if the first is what is wanted.
    """

    candidates: tuple[str, str]
    aspect: Aspect
    want: str
    role: str = ""
    yes_or_no: bool = False


def words_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern of whole words, large or small, given the alternatives."""
    return re.compile(rf"\b(?:{text})\b", re.IGNORECASE)


def _read_end(text: str) -> Date | None:
    return read_date(text, end=True)


# Small letters alone: in titles they are names.
_NEGATION = re.compile(r"\b(?:not|never|neither|nor|except|[a-z]+n['’]t)\b")


_NEVER = re.compile("(?!)")
_BIRTH_WORDS = words_pattern("born|births?|birthday|birthdate|age|old|older|younger")
_DEATH_WORDS = words_pattern("dies?|died|dead|deaths?|deceased|killed|passed away|buried")
_DATE_WORDS = "when|dates?|years?"
BIRTH = Aspect("birth", _BIRTH_WORDS, read_date, _DEATH_WORDS)
DEATH = Aspect("death", _DEATH_WORDS, _read_end, _BIRTH_WORDS)
DATE = Aspect(
    "date",
    words_pattern(f"{_DATE_WORDS}|released?|publication"),
    read_date,
    words_pattern("born|birth|died?|death|marr(?:y|ied|iage)|set|won|awarded"),
)
CREATION_WORDS = (
    r"form\w*|found\w*|establish\w*|creat\w*|buil[td]\w*|construct\w*|open\w*|releas\w*|publi(?:sh|cat)\w*|"
    r"incorporat\w*|launch\w*|start\w*"
)
AGE = Aspect(  # of people, bands, buildings
    "age", words_pattern(f"{_BIRTH_WORDS.pattern}|{CREATION_WORDS}"), read_date, _DEATH_WORDS
)
LIFE = Aspect("life", _NEVER, _read_end, _NEVER)  # of a birth and a death
COUNTRY = Aspect(
    "country",
    words_pattern(
        "countr(?:y|ies)|nation|nationality|citizen(?:ship)?|origin|originate[ds]?|from|where|located"
    ),
    read_country,
    words_pattern(
        rf"{_DEATH_WORDS.pattern}|set|takes? place|took place|stud\w+|work\w*|liv\w+|educat\w+|marr\w+|"
        r"play\w*|grew|rais\w+|mov\w+"
    ),
)

_SINGS = r"perform\w*|sings?|sang|singer|artist"
ROLES = {
    "director": r"direct\w*", "author": r"author|wr[io]t\w*", "composer": r"compos\w*", "performer": _SINGS,
    "singer": _SINGS, "writer": r"wr[io]t\w*", "screenwriter": r"\w*wr[io]t\w*", "producer": r"produc\w*",
    "founder": r"found\w*", "creator": r"creat\w*",
}  # fmt: skip
"""Who may be compared in place of a work, and what a sub-query for them has in it."""

_EARLIER = "first|earlier|earliest|older|oldest|before"
_LATER = "later|latest|more recently|most recently|younger|youngest|newer|after"
_HOW = rf"(?P<how>{_EARLIER}|{_LATER}|longer)"
_EVENT = words_pattern(
    r"releas\w*|comes?|came|publish\w*|made|form\w*|found\w*|establish\w*|buil[td]\w*|creat\w*|open\w*|"
    r"start\w*|beg[aiu]n|premier\w*|produced|launch\w*|complet\w*|introduced|aired|recorded|written|"
    r"happen\w*|occur\w*|takes? place|took place|invented|discovered|debut\w*"
)
_DID = r"(?:born|died?|lived?|released|founded|formed|established|come out|published|made|built|opened)"
_WHICH = re.compile(  # Which film came out first, A or B?
    rf"[Ww](?:hich|ho|hat|hose)\b(?P<stem>[^,:]*?\b{_HOW}\b(?: than the other| out of|,? between)?)"
    r"(?:\s*[,:]\s*|\s+)(?P<pair>[^a-z\s].*)"
)
_WAS = re.compile(  # Was A or B born first?
    rf"(?:Was|Were|Did|Is)\s+(?P<pair>.+?\sor\s.+?)(?P<stem>(?:\s{_DID})?\s{_HOW})"
)
_THAN = re.compile(  # Is A older than B? Was A born before B?
    rf"(?:Was|Were|Did|Is|Are)\s+(?P<first>.+?)(?P<stem>(?:\s{_DID})?\s{_HOW}(?:\sthan)?)\s+(?P<second>.+)"
)
_SAME = re.compile(  # Are A and B from the same country? Does A have the same nationality as B?
    r"(?:Are|Were|Is|Was|Do|Did|Does|Have|Has)\s+(?P<pair>.+)\s(?P<want>same|different)\s+"
    r"(?P<what>countr(?:y|ies)|nationalit(?:y|ies)|nation)"
    r"(?: of (?:birth|origin|citizenship))?(?:\s+as\s+(?P<second>.+))?"
)
_TAIL = re.compile(  # what stands between the candidates and "same"
    r",?\s+(?:both|all|located|situated|based|born|died?|have|has|shares?|originate[sd]?|come|came|from|of|in|"
    r"at|the|a|that|who|which|whose|are|were|is|was|films?|movies|"
    rf"(?P<role>(?:{'|'.join(ROLES)})s?)),?$"
)


def read_tasks(question: str) -> Iterator[Task]:
    """Yield the comparisons that a question may be; none for a question of another kind."""
    text = " ".join(question.split()).rstrip("?. ")
    if _NEGATION.search(text):
        return
    if match := _SAME.fullmatch(text):
        yield from _read_same(match)
    elif match := _WHICH.fullmatch(text) or _WAS.fullmatch(text):
        stem = match["stem"]
        want = _read_want(stem, match["how"])
        role = next(
            (role for role in ROLES if re.search(rf"\b(?:has|whose|with|of)\b.*\b{role}\b", stem)), ""
        )
        for first, second in _splits(match["pair"], "and" if stem.endswith((" of", "between")) else "or"):
            if want and _is_name(first) and _is_name(second):
                yield Task((first, second), *want, role)
    elif (
        (match := _THAN.fullmatch(text))
        and (want := _read_want(match["stem"], match["how"]))
        and _is_name(match["first"])
        and _is_name(match["second"])
    ):
        yield Task((match["first"], match["second"]), *want, yes_or_no=True)


def _is_name(text: str) -> bool:
    """Whether a candidate may be what the answer is called.

    One that begins small is a description ("the singer of ..."), and one with a verb a clause ("A died").
    """
    small_words = " ".join(re.findall(r"\b[a-z]+\b", text))
    is_clause = _BIRTH_WORDS.search(small_words) or _DEATH_WORDS.search(small_words)
    return not (text[:1].islower() or is_clause)


def _read_want(stem: str, how: str) -> tuple[Aspect, str] | None:
    """Return what is compared and which of two is wanted; None where the question does not tell."""
    lived = _DEATH_WORDS.search(stem) or re.search(r"\blived?\b", stem)
    if how == "longer" or (how.startswith(("old", "young")) and lived):
        return (LIFE, "less" if how.startswith("young") else "more") if lived else None
    want = "earlier" if re.fullmatch(_EARLIER, how) else "later"
    aspects = ((DEATH, _DEATH_WORDS), (BIRTH, words_pattern("born|birth")))
    aspect = next(
        (each for each, words in aspects if words.search(stem)),
        AGE if how.startswith(("old", "young", "new")) else DATE if _EVENT.search(stem) else None,
    )
    return (aspect, want) if aspect else None


def _read_same(match: re.Match[str]) -> Iterator[Task]:
    """Yield the readings of "Are A and B from the same country", one for each "and"."""
    pair, roles = match["pair"], list[str]()
    while tail := _TAIL.search(pair):
        roles += [tail["role"].rstrip("s")] if tail["role"] else []
        pair = pair[: tail.start()]
    splits = [(pair, match["second"])] if match["second"] else _splits(pair, "and")
    for sides in splits:
        names = [_peel_front(side, roles) for side in sides]
        if all(names):
            yield Task((names[0], names[1]), COUNTRY, match["want"], next(iter(roles), ""))


def _peel_front(side: str, roles: list[str]) -> str:
    """Return a candidate without the small words before its name, and note the roles among them."""
    words = side.split()
    while words and re.fullmatch(r"[a-z]+[,:]?", words[0]):
        word = words.pop(0).rstrip(",:").removesuffix("s")
        roles += [word] if word in ROLES else []
    return " ".join(words).strip(" ,")


def _splits(pair: str, word: str) -> list[tuple[str, str]]:
    return [
        (pair[: match.start()].strip(" ,"), pair[match.end() :].strip(" ,"))
        for match in re.finditer(rf"\s{word}\s", pair)
    ]
