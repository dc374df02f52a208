"""Tables of contents: lines that only say on which page something stands.

They have every word of the titles, so searches would find them in place of the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

_CONTENTS = frozenset(
    name.casefold()
    for name in (
        "Contents", "Table of contents", "Brief contents", "List of figures", "List of tables", "Figures",
        "Tables", "Inhalt", "Inhaltsverzeichnis", "Abbildungsverzeichnis", "Tabellenverzeichnis", "Sommaire",
        "Table des matières", "Table des figures", "Índice", "Índice general", "Contenido",
        "Tabla de contenido", "Tabla de contenidos", "Conteúdo", "Sumário", "Indice", "Sommario", "Inhoud",
        "Inhoudsopgave", "Innehåll", "Indhold", "Innhold", "Spis treści", "Obsah", "Оглавление", "Содержание",
        "目录", "目錄", "目次", "차례", "목차",
    )
)  # fmt: skip
_PAGE = r"(?:[0-9]{1,4}|[ivxlcdm]{1,8}|[A-Z]{1,2}-?[0-9]{1,3})"
_DOTS = ("..", ". .", "…", "·")
_LEADER = re.compile(rf"(?:(?:\s?[.·]){{3,}}|\s?…+)[\s.·…]*({_PAGE})$")
_PAGE_NUMBER = re.compile(_PAGE)
NUMBERING = re.compile(r"^(?:[^\W\d_]+\s+)?[0-9A-Z]+(?:\.[0-9]+)*[.:)]?\s+")

_LONGEST = 300  # characters of an entry
_MOST_WRAPPED = 2  # lines without a page number between two entries: a title that goes on
_FEWEST = 3  # entries of a table of contents
_FEWEST_UNCHECKED = 5  # where it is not known which pages there are
_RISING = 0.8  # of the steps from entry to entry at least go to the same page or a later one
_ENTRIES = 0.5  # of the lines at least are entries


def fold(text: str) -> str:
    """Return a text's letters and digits alone, in small letters, to compare titles by.

    >>> fold("4.1 Names & Places")
    '41namesplaces'
    """
    return "".join(filter(str.isalnum, text.casefold()))


def is_contents_heading(line: str) -> bool:
    """Whether a line is what is written above a table of contents."""
    return line.strip(" .:").casefold() in _CONTENTS


def find_contents(
    lines: Sequence[str], labels: Collection[str] = (), titles: Collection[str] = ()
) -> set[int]:
    """Return which lines are a table of contents, its heading included.

    An entry ends in a page number, after a row of dots or after a title that the document has. So do rows of
    other tables: contents are several that follow each other, with page numbers that rise.

    Args:
        lines: of the whole document.
        labels: of the document's pages; empty if they are not known.
        titles: of its sections, with and without their numbers, folded (:func:`fold`).
    """
    known_labels = {label.casefold() for label in labels}
    entries: dict[int, bool] = {}  # by line: whether it is an entry for sure
    pages: dict[int, int] = {}
    for number, line in enumerate(lines):
        if len(line) > _LONGEST:
            continue
        leader = _LEADER.search(line) if any(dots in line for dots in _DOTS) else None
        text, _, last = line.rpartition(" ")
        page = leader[1] if leader else last if text and _PAGE_NUMBER.fullmatch(last) else ""
        if page and (not known_labels or page.casefold() in known_labels):
            entries[number] = bool(leader) or _names_title(text, titles)
            pages[number] = int(page) if page.isdecimal() else 0  # small roman ones come first
    contents: set[int] = set()
    for run in _runs(sorted(entries)):
        run = _trim(run, entries, pages)
        first, end = run[0], run[-1] + 1
        above = first
        while above and first - above < _FEWEST and not is_contents_heading(lines[above]):
            above -= 1
        has_heading = is_contents_heading(lines[above])
        sure_ones = sum(entries[number] for number in run)
        fewest = _FEWEST if known_labels or has_heading else _FEWEST_UNCHECKED
        rising = sum(pages[one] <= pages[next_one] for one, next_one in pairwise(run))
        if (
            len(run) >= fewest
            and (sure_ones >= max(fewest, len(run) / 2) or (has_heading and (known_labels or sure_ones)))
            and len(run) >= _ENTRIES * (end - first)
            and rising >= _RISING * (len(run) - 1)
        ):
            contents.update(range(above if has_heading else first, end))
    return contents


def _names_title(text: str, titles: Collection[str]) -> bool:
    return bool(titles) and (fold(text) in titles or fold(NUMBERING.sub("", text)) in titles)


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in numbers:
        if run and number - run[-1] > _MOST_WRAPPED + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _trim(run: list[int], entries: Mapping[int, bool], pages: Mapping[int, int]) -> list[int]:
    """Leave out lines of the text before and after, which end in a number by chance."""
    while len(run) > 1 and not entries[run[0]] and (pages[run[0]] > pages[run[1]] or run[1] > run[0] + 1):
        run = run[1:]
    while (
        len(run) > 1 and not entries[run[-1]] and (pages[run[-1]] < pages[run[-2]] or run[-1] > run[-2] + 1)
    ):
        run = run[:-1]
    return run
