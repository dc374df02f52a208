"""Values that a sub-answer states and that can be compared: dates and countries. English only."""

from __future__ import annotations

import re
import unicodedata
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
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+{_MONTH},?\s+(?P<year>\d{{1,4}})\b{_ERA}",
        rf"\b{_MONTH}\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s*,?\s+(?P<year>\d{{1,4}})\b{_ERA}",
        rf"\b{_MONTH},?\s+(?P<year>\d{{3,4}})\b{_ERA}",
        r"\b(?P<year>\d{4})-(?P<number>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])\b",
        r"(?<![\d.,])(?P<year>\d{1,4})\s*(?P<era>bce?\b|b\.c\.(?:e\.)?)",
        r"(?<![\d.,])(?P<decade>[12]\d\d0)s\b",
        r"(?<![\d.,])(?P<year>1\d\d\d|20\d\d)\b(?![.,]\d)",
    )
)
# All that stands between the two dates of a span: "1686–1753", "3 May 44 BC) to (c. 14 AD".
_SPAN = re.compile(
    r"[\s?)\]]*(?:(?:AD|CE)[\s)\]]*)?(?:[-–—]\s*|\s(?:to|until)\s+)(?:(?:c\.?|ca\.?|circa|about)\s*)?[(\[]?",
    re.IGNORECASE,
)
# Beside a value these say that it is a bound, an estimate, an age or one of several.
_UNSURE = re.compile(
    r"\b(?:before|after|since|around|about|circa|ca|approximately|roughly|between|early|late|mid|over|under|"
    r"nearly|almost|at least|at most|more|less|fewer|up to|or|possibly|probably|perhaps|maybe|unknown|"
    r"unclear|uncertain|not?|never|aged?|old)\b|\bc\.",
    re.IGNORECASE,
)
_STATE = re.compile(  # Georgia in "Atlanta, Georgia" or "Georgia, U.S.", which may be the state
    r",\s*Georgia\b|\bstate of Georgia\b|\bGeorgia(?=,?\s+(?:\(\s*)?(?:the\s+)?(?:U\.?S|United States))"
)


@dataclass(frozen=True, slots=True)
class Date:
    """A date: the first and the last day that it may be, each (year, month, day). Years BC are below 1."""

    first: tuple[int, int, int]
    last: tuple[int, int, int]

    def overlaps(self, other: Date) -> bool:
        """Whether neither of the two is before the other, as far as is known."""
        return self.first <= other.last and other.first <= self.last


def read_dates(text: str) -> list[Date]:
    """Return the dates that a text states, in its order; of one written in full no part counts by itself.

    >>> [date.first for date in read_dates("born 19 February 1913, died in March 44 BC")]
    [(1913, 2, 19), (-43, 1, 1)]
    """
    return [date for _, _, date in _find_dates(text)]


def _find_dates(text: str) -> list[tuple[int, int, Date]]:
    """Return the dates that a text states, each with where it begins and ends."""
    places: list[tuple[int, int, Date]] = []
    rest = text
    for pattern in _DATES:
        for match in pattern.finditer(rest):
            if (date := _date(match.groupdict())) is not None:
                places.append((*match.span(), date))
        # Of the same length, so that places stay what they are.
        rest = pattern.sub(lambda match: " " * len(match.group()), rest)
    return sorted(places, key=lambda each: each[0])


def _date(parts: Mapping[str, str | None]) -> Date | None:
    if parts.get("decade"):
        decade = int(parts["decade"] or 0)
        return Date((decade, 1, 1), (decade + 9, 12, 31))
    year = int(parts["year"] or 0)
    if parts.get("era"):
        year = 1 - year
    name = (parts.get("month") or "")[:3].lower()
    # A pattern without case takes "ſep" for "sep"; the table does not have it.
    month = _MONTHS.get(name) if name else int(parts.get("number") or 0)
    day = int(parts.get("day") or 0)
    if day > 31 or month is None:
        return None
    return Date((year, month or 1, day or 1), (year, month or 12, day or 31))


def read_date(text: str, *, end: bool = False) -> Date | None:
    """Return the date that a text states, None if it states none or several, or anything makes it unsure.

    Of a span ("1686–1753") the first, or the last at its ``end``.
    """
    places = _find_dates(text)
    dates = [date for _, _, date in places]
    beside = "".join([text[: places[0][0]], text[places[-1][1] :]] if places else [])
    if _UNSURE.search(beside) or re.search(r"\d", beside):
        return None
    is_span = len(places) == 2 and _SPAN.fullmatch(text[places[0][1] : places[1][0]])
    if is_span and not dates[0].overlaps(dates[1]):
        return dates[1 if end else 0] if dates[0].first < dates[1].first else None
    return dates[0] if dates and all(each.overlaps(dates[0]) for each in dates) else None


def plain(text: str) -> str:
    """Return a text in small letters without accents, marks and the s of whose, one space between words.

    >>> plain("Côte d'Ivoire's (U.S.)")
    'cote divoire us'
    """
    letters = unicodedata.normalize("NFKD", re.sub(r"['’]s\b", "", text.casefold()))
    base_letters = "".join(each for each in letters if not unicodedata.combining(each) and each not in ".'’")
    return " ".join(re.sub(r"[^\w]+", " ", base_letters).split())


@cache
def _countries() -> tuple[re.Pattern[str], Mapping[str, str]]:
    """Return a pattern of all names, the longest first, and what each is a name of; "" for no country."""
    names: dict[str, str] = {}
    for line in COUNTRIES.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            country, *others = (name.strip() for name in line.removeprefix("- ").split(","))
            for name in (country, *others):
                names[plain(name)] = "" if line.startswith("- ") else country
    longest = sorted(names, key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(longest)})\b"), names


def read_country(text: str) -> str | None:
    """Return the country that a text names, or its people, None if it names none or several.

    >>> read_country("She is American."), read_country("Bissau, Guinea-Bissau"), read_country("New Mexico")
    ('United States', 'Guinea-Bissau', None)
    """
    pattern, names = _countries()
    text = _STATE.sub(" ", text)
    # "us" and "in" are words, too: what is short must be written in capitals.
    countries = {
        names[match.group()]
        for match in pattern.finditer(plain(text))
        if len(match.group()) > 2 or re.search(rf"\b{'[.]?'.join(match.group().upper())}\b", text)
    } - {""}
    return countries.pop() if len(countries) == 1 else None
