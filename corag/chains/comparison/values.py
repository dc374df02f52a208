"""Values that a sub-answer states and that can be compared: dates and countries. English only."""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

COUNTRIES = Path(__file__).parent / "assets" / "countries.txt"

_MONTHS = {
    name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)
}
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_ERA = r"(?:\s*(?P<era>bce?|b\.c\.(?:e\.)?))?(?![\w-]*\d)"
_YEAR = r"\d{3,4}|\d{1,2}(?=\s*b\.?c)"  # "3 May 85" may be of any century
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?(?:\s+of)?\s+{_MONTH},?\s+(?P<year>{_YEAR})\b{_ERA}",
        rf"\b{_MONTH}\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s*,?\s+(?P<year>{_YEAR})\b{_ERA}",
        rf"\b{_MONTH},?\s+(?P<year>\d{{3,4}})\b{_ERA}",
        r"\b(?P<year>\d{4})-(?P<number>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])\b",
        r"(?<![\d.,])(?P<year>\d{1,4})\s*(?P<era>bce?\b|b\.c\.(?:e\.)?)",
        r"(?<![\d.,])(?P<year>1\d\d\d|20\d\d)\b(?![.,]\d)",
    )
)
# Where it was, behind a date or before it: " in Boston, Massachusetts".
_PLACE = re.compile(r"\s(?:in|at)(?:\s[^\W\d_a-z][^\W\d_]*[,.]?)+(?=\s+(?:in|on)\s|\W*$)")
_MARKS = re.compile(r"[^\w\s.,:;()\"'’]")
"""What makes a value unsure beside it: 1950?, ~1950, 1950–51."""


@dataclass(frozen=True, slots=True)
class Date:
    """A date: the first and the last day that it may be, each (year, month, day). Years BC are below 1."""

    first: tuple[int, int, int]
    last: tuple[int, int, int]

    def overlaps(self, other: Date) -> bool:
        """Whether neither of the two is before the other, as far as is known."""
        return self.first <= other.last and other.first <= self.last


def read_date(text: str, words: frozenset[str]) -> Date | None:
    """Return the date that a text states beside known ``words``; None for another word, or not one date.

    >>> read_date("on 19 February 1913 in Oslo", frozenset({"on"})).first
    (1913, 2, 19)
    >>> read_date("before 1913", frozenset({"on"}))
    """
    match = next((match for pattern in _DATES if (match := pattern.search(text))), None)
    if match is None:
        return None
    rest = _PLACE.sub(" ", f"{text[: match.start()]} in 1 {text[match.end() :]}")
    return _date(match.groupdict()) if _is_known(rest, words | {"in", "1"}) else None


def _date(parts: Mapping[str, str | None]) -> Date | None:
    year = int(parts["year"] or 0)
    if parts.get("era"):
        year = 1 - year
    name = (parts.get("month") or "")[:3].lower()
    # A pattern without case takes "ſep" for "sep"; the table does not have it.
    month = _MONTHS.get(name) if name else int(parts.get("number") or 0)
    day = int(parts.get("day") or 0)
    try:
        datetime.date(2000, month or 1, day or 1)
    except ValueError:
        return None
    return None if month is None else Date((year, month or 1, day or 1), (year, month or 12, day or 31))


def _is_known(rest: str, words: frozenset[str]) -> bool:
    """Whether a text, without the value in it, has known ``words`` and harmless marks alone."""
    return not _MARKS.search(rest) and set(plain_words(rest)) <= words


def plain(text: str) -> str:
    """Return a text in small letters without accents, marks and the s of whose, one space between words.

    >>> plain("Côte d'Ivoire's (U.S.)")
    'cote divoire us'
    """
    letters = unicodedata.normalize("NFKD", re.sub(r"['’]s\b", "", text.casefold()))
    base_letters = "".join(each for each in letters if not unicodedata.combining(each) and each not in ".'’")
    return " ".join(re.sub(r"[^\w]+", " ", base_letters).split())


def plain_words(text: str) -> list[str]:
    """Return the words of a text as ``plain`` has them."""
    return plain(text).split()


@cache
def _countries() -> tuple[re.Pattern[str], Mapping[str, frozenset[str]]]:
    """Return a pattern of all names, the longest first, and the countries that each may be a name of."""
    names = defaultdict[str, set[str]](set)
    for line in COUNTRIES.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            country, *others = (name.strip() for name in line.split(","))
            for name in (country, *others):
                names[plain(name)].add(country)
    longest = sorted(names, key=len, reverse=True)
    pattern = re.compile(rf"\b(?:{'|'.join(longest)})\b")
    return pattern, {name: frozenset(countries) for name, countries in names.items()}


def read_country(text: str, words: frozenset[str]) -> frozenset[str] | None:
    """Return the country that a text names beside known ``words``, or its people; several if it may be any.

    None if it has another word, or not one country.

    >>> read_country("She is American.", frozenset({"she", "is"})), read_country("New Mexico", frozenset())
    (frozenset({'United States'}), None)
    """
    pattern, names = _countries()
    plain_text = plain(text)
    matches = list(pattern.finditer(plain_text))
    # "us" and "in" are words, too: what is short must be written in capitals.
    matches = [
        match
        for match in matches
        if len(match.group()) > 2 or re.search(rf"\b{'[.]?'.join(match.group().upper())}\b", text)
    ]
    if len(matches) != 1 or _MARKS.search(re.sub("[-–]", " ", text)):
        return None
    rest = f"{plain_text[: matches[0].start()]} {plain_text[matches[0].end() :]}"
    return names[matches[0].group()] if set(rest.split()) <= words else None
