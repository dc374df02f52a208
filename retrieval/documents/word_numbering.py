"""Word's automatic numbers: "2.1" of a heading, "(a)" of a list. They are in no text, but counted by Word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from retrieval.documents.word_package import W

_PLACE = re.compile(r"%([1-9])")
_ROMAN = tuple(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        "m cm d cd c xc l xl x ix v iv i".split(),
        strict=True,
    )
)
_LEVELS = 9


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a list: where it starts, how its numbers look and what stands around them, as in "(%1)"."""

    start: int = 1
    format: str = "decimal"
    text: str = ""
    restarts: bool = True
    all_decimal: bool = False


@dataclass(slots=True)
class _Numbers:
    """A list's levels, and where each of its numbers stands."""

    levels: dict[int, Level] = field(default_factory=dict)
    by_style: dict[str, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    style_link: str = ""


class Numbering:
    """The lists of a document; :meth:`label` counts on. ``part``: the root of numbering.xml, None without."""

    def __init__(self, part: Any, numbers_of_styles: Mapping[str, str]) -> None:
        lists = (
            {}
            if part is None
            else {
                each.get(f"{W}abstractNumId", ""): _read_list(each) for each in part.iter(f"{W}abstractNum")
            }
        )
        self._lists: dict[str, _Numbers] = {}
        self._starts: dict[str, dict[int, int]] = {}
        pointers: dict[str, str] = {}
        for number in () if part is None else part.iter(f"{W}num"):
            identifier = number.get(f"{W}numId", "")
            pointers[identifier] = value(number, "abstractNumId")
            if (target := lists.get(pointers[identifier])) is None:
                continue
            self._lists[identifier] = target
            for override in number.iter(f"{W}lvlOverride"):
                level_index = to_number(override.get(f"{W}ilvl"), 0)
                if override.find(f"{W}startOverride") is not None:
                    self._starts.setdefault(identifier, {})[level_index] = to_number(
                        value(override, "startOverride"), 1
                    )
                if (level := override.find(f"{W}lvl")) is not None:
                    # The list of this number alone looks otherwise.
                    numbers_of_list = _Numbers(
                        dict(self._lists[identifier].levels), target.by_style, target.counts
                    )
                    numbers_of_list.levels[level_index] = _read_level(level)
                    self._lists[identifier] = numbers_of_list
        for identifier, each in self._lists.items():
            # A list may stand for that of a list style.
            other = self._lists.get(numbers_of_styles.get(each.style_link, ""))
            if not each.levels and other is not None:
                self._lists[identifier] = other

    def level_of_style(self, number: str, style: str) -> int | None:
        """Return the level of a list that belongs to a paragraph style, None if none does."""
        numbers = self._lists.get(number)
        return numbers.by_style.get(style) if numbers else None

    def label(self, number: str, level_index: int) -> str:
        """Return the next number of a list's level as it is shown, "-" for a bullet."""
        numbers = self._lists.get(number)
        level = numbers.levels.get(level_index) if numbers else None
        if numbers is None or level is None:
            return "-"
        counts = numbers.counts
        for start_place, start in self._starts.pop(number, {}).items():
            counts[start_place] = start - 1
        counts[level_index] = counts.get(level_index, level.start - 1) + 1
        for deeper in [each for each in counts if each > level_index]:
            if numbers.levels.get(deeper, Level()).restarts:
                del counts[deeper]
        if level.format == "bullet":
            return "-"

        def show_number(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            other = numbers.levels.get(at, Level())
            count = counts.setdefault(at, other.start)
            return format_number(count, "decimal" if level.all_decimal else other.format)

        label = _PLACE.sub(show_number, level.text).strip()
        return label if any(map(str.isalnum, label)) else "" if level.format == "none" else "-"


def format_number(number: int, form: str) -> str:
    """Return a number in one of Word's forms; digits for those of other scripts.

    >>> format_number(4, "lowerRoman"), format_number(28, "upperLetter"), format_number(7, "decimalZero")
    ('iv', 'BB', '07')
    """
    if form == "none":
        return ""
    if form == "decimalZero":
        return f"{number:02d}"
    if form in ("lowerRoman", "upperRoman") and 0 < number < 4000:
        text = ""
        for worth, numeral in _ROMAN:
            text += numeral * (number // worth)
            number %= worth
        return text if form == "lowerRoman" else text.upper()
    if form in ("lowerLetter", "upperLetter") and number > 0:
        # After z come aa, bb, cc.
        text = chr(ord("a") + (number - 1) % 26) * min((number - 1) // 26 + 1, 20)
        return text if form == "lowerLetter" else text.upper()
    if form == "ordinal":
        ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
        return f"{number}{ending}"
    return str(number)


def value(parent: Any, name: str) -> str:
    """Return the value of an element's property, "" if it has none."""
    child = None if parent is None else parent.find(f"{W}{name}")
    return "" if child is None else str(child.get(f"{W}val", ""))


def to_number(text: str | None, otherwise: int) -> int:
    """Return a number in a file, or another if it is none."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else otherwise


def _read_list(element: Any) -> _Numbers:
    numbers = _Numbers(style_link=value(element, "numStyleLink"))
    for level in element.iter(f"{W}lvl"):
        level_index = to_number(level.get(f"{W}ilvl"), 0)
        if level_index < _LEVELS:
            numbers.levels[level_index] = _read_level(level)
            if style := value(level, "pStyle"):
                numbers.by_style[style] = level_index
    return numbers


def _read_level(element: Any) -> Level:
    return Level(
        to_number(value(element, "start"), 1),
        value(element, "numFmt") or "decimal",
        value(element, "lvlText"),
        value(element, "lvlRestart") != "0",
        element.find(f"{W}isLgl") is not None,
    )
