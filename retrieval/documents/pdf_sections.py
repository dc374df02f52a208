"""Where the sections of a PDF begin: at its outline's headings; without one, at what looks like a heading."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from retrieval.documents.contents import fold
from retrieval.documents.pdf_pages import Line, OutlineEntry, Page

_MOST_SECTIONS = 50  # that begin on one page
_MOST_LINES = 4  # that a heading fills, with its number
_ABOVE = 4.0  # points that a heading may stand above the place to which its outline leads
# What is printed before a heading and missing in the outline: "4.1", "Chapter 4", "CHAPTER FOUR", "A.".
_NUMBERING = re.compile(
    r"(?:(?:[^\W\d_]+ )?(?:[0-9]+|[IVXLC]+|[A-Z])(?:\.[0-9]+)*[.:)]?"
    r"|(?i:chapter|part|appendix|annex) [\w-]+)(?: ?[-–—:])?(?= )"
)
_LARGER = 1.12  # times the size of the text
_FEWEST_LETTERS, _LONGEST = 3, 120  # characters of a heading
_LONGEST_SENTENCE = 60  # characters of one that ends in a full stop
_NO_TITLE = re.compile(r"[,;:.)]|(?:fig|tab|abb)\w*\.? ?\d", re.IGNORECASE)  # or a caption
_MOST_REPEATS = 2  # what comes more often is a label
_MOST_BOLD = 0.3  # of the text: where more is, bold does not tell headings
_MOST_HEADINGS = 0.2  # of the text: where more seem to be, as in drawings, type does not tell them


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading, and the line of its page that it stands before; ``lines``: how many are printed of it."""

    level: int
    title: str
    place: int
    lines: int


def place_sections(pages: Sequence[Page], outline: Sequence[OutlineEntry]) -> Mapping[int, Sequence[Heading]]:
    """Find the lines at which the outline's sections begin, by page, counted from 0."""
    found: dict[int, list[Heading]] = {}
    for entry in outline:
        if any(map(str.isalnum, entry.title)):
            found.setdefault(entry.page, []).append(_place_section(entry, pages[entry.page].lines))
    for number, sections in found.items():
        if len(sections) > _MOST_SECTIONS:
            # The outline of a book of which this is one page: what is printed there may be its own.
            printed = {section.place: section for section in reversed(sections) if section.lines}
            found[number] = sections = list(printed.values())
        sections.sort(key=lambda section: section.place)
    return found


def _place_section(entry: OutlineEntry, lines: Sequence[Line]) -> Heading:
    """Find a heading on the page that the outline names: by its words, else by its place."""
    level = entry.level + 2  # the first is the document's title's
    title = fold(entry.title)
    below = [
        position
        for position, line in enumerate(lines)
        if entry.height is None or line.height <= entry.height + _ABOVE
    ]
    for position in below:
        for count in range(1, _MOST_LINES + 1):
            heading = " ".join(line.text for line in lines[position : position + count])
            if fold(heading) == title:
                return Heading(level, entry.title, position, count)
            number = _NUMBERING.match(heading)
            if number and fold(heading[number.end() :]) == title:
                return Heading(level, f"{number[0]} {entry.title}", position, count)
    return Heading(level, entry.title, below[0] if below and entry.height is not None else 0, 0)


def find_sections(
    pages: Sequence[Page], running: Collection[tuple[int, int]]
) -> Mapping[int, Sequence[Heading]]:
    """Find sections by the type of their headings: larger than the text, or bold where the text is not.

    ``running``: the places (page, line) of running lines, which are none.
    """
    lines = [line for page in pages for line in page.lines]
    text_size = usual_size(lines)
    bold: Counter[bool] = Counter()
    for line in lines:
        bold[line.bold] += len(line.text)
    bold_tells = bold[True] < _MOST_BOLD * bold.total()

    def type_of(line: Line) -> tuple[float, bool] | None:
        is_bold = bold_tells and line.bold and line.size >= text_size
        return (line.size, line.bold) if is_bold or line.size >= _LARGER * text_size else None

    found: list[tuple[tuple[float, bool], int, str, list[int]]] = []  # type, page, title, lines
    for number, page in enumerate(pages):
        places = [place for place in range(len(page.lines)) if (number, place) not in running]
        for kind, group in groupby(places, key=lambda place: type_of(page.lines[place])):
            heading = [*group]
            title = " ".join(page.lines[place].text for place in heading)
            if kind and len(heading) <= _MOST_LINES and _is_title(title):
                found.append((kind, number, title, heading))
    if sum(len(title) for _, _, title, _ in found) > _MOST_HEADINGS * bold.total():
        return {}
    kinds = sorted({kind for kind, *_ in found}, reverse=True)
    repeats = Counter(title for _, _, title, _ in found)
    sections: dict[int, list[Heading]] = {}
    for kind, number, title, heading in found:
        if repeats[title] <= _MOST_REPEATS:
            section = Heading(kinds.index(kind) + 1, title, heading[0], len(heading))
            sections.setdefault(number, []).append(section)
    return sections


def usual_size(lines: Iterable[Line]) -> float:
    """Return the size of type that most of the text has, in points."""
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += len(line.text)
    return max(sizes, key=lambda size: sizes[size], default=0.0)


def _is_title(text: str) -> bool:
    letters = sum(map(str.isalpha, text))
    longest = _LONGEST_SENTENCE if text.endswith(".") else _LONGEST
    is_odd = _NO_TITLE.match(text) or text[0].islower() or text.endswith((",", ";", ":"))
    return not is_odd and _FEWEST_LETTERS <= letters <= len(text) <= longest and 2 * letters >= len(text)
