"""Tables of contents and back-of-book indexes: lines that only say on which page something stands.

They have every word of the titles, so searches would find them in place of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
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
_INDEX = re.compile(
    r"\b(?:index|indexes|indices|stichwort\w*|sachwort\w*|sachverzeichnis|sachregister|personenregister|register"
    r"|índice|indice|skorowidz|rejstřík|указатель)\b|索引|찾아보기",
    re.IGNORECASE,
)
_PAGE = r"(?:[0-9]{1,4}|[ivxlcdm]{1,8}|[A-Z]{1,2}-?[0-9]{1,3})"
_DOTS = ("..", ". .", "…", "·")
_LEADER = re.compile(rf"(?:(?:\s?[.·]){{3,}}|\s?…+)[\s.·…]*({_PAGE})$")
_PAGE_NUMBER = re.compile(_PAGE)
NUMBERING = re.compile(r"^(?:[^\W\d_]+\s+)?[0-9A-Z]+(?:\.[0-9]+)*[.:)]?\s+")
_PAGES = rf"{_PAGE}(?:\s*[-–]\s*[0-9]+)?[nf]{{0,2}}"
_PAGE_LIST = rf"({_PAGES}(?:\s*,\s*{_PAGES})*)$"
_INDEX_ENTRY = re.compile(rf"(?:[\s,]*|.*?[^\W\d_].*?,\s*){_PAGE_LIST}")
_DOTTED_INDEX_ENTRY = re.compile(rf"(?:(?:\s?[.·]){{3,}}|\s?…+)[\s.·…]*{_PAGE_LIST}")
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}

_LONGEST = 300  # characters of an entry
_CUT_ENTRY = 12  # letters by which a line is known that is broken elsewhere the second time
_MOST_TABLES = 50  # tables of contents: one for each chapter
_MOST_BETWEEN = 4  # lines between two repeated entries: there they may be broken or numbered otherwise
_HEADING_WORDS = 8
_MOST_WRAPPED = 2  # lines without a page number between two entries: a title that goes on
_FEWEST = 3  # entries of a table of contents or an index
_FEWEST_UNCHECKED = 5  # where it is not known which pages there are
_RISING = 0.8  # of the steps from entry to entry at least go to the same page or a later one
_ENTRIES = 0.5  # of the lines at least are entries
_LEAST_DOTTED = 8  # entries after rows of dots show an index without a heading
_INDEX_ENTRIES = 0.35  # of an index's: its terms have lines of their own


def fold(text: str) -> str:
    """Return a text's letters and digits alone, in small letters, to compare titles by.

    >>> fold("4.1 Names & Places")
    '41namesplaces'
    """
    return "".join(filter(str.isalnum, text.casefold()))


def is_contents_heading(line: str) -> bool:
    """Whether a line is what is written above a table of contents."""
    return line.strip(" .:").casefold() in _CONTENTS


def is_index_heading(line: str) -> bool:
    """Whether a line may be what is written above an index, such as "Subject index"."""
    return _INDEX.search(line) is not None and len(line.split()) <= _HEADING_WORDS


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
            pages[number] = _page_order(page)
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


def find_repeated_contents(lines: Sequence[str]) -> set[int]:
    """Return which lines are a table of contents without page numbers, its heading included.

    Below a heading that says so stand lines that are met again further down, as headings.
    """
    starts = [number for number, line in enumerate(lines) if is_contents_heading(line)][:_MOST_TABLES]
    folded_lines = [fold(line) for line in lines] if starts else []
    contents: set[int] = set()
    for start in starts:
        later = sorted(line for line in folded_lines[start + 1 :] if line)
        entries: list[int] = []
        for number in range(start + 1, len(lines)):
            if not folded_lines[number]:
                continue
            count_between = sum(map(bool, folded_lines[(entries or [start])[-1] + 1 : number]))
            # The text begins with the first section.
            if count_between > _MOST_BETWEEN or (
                entries and folded_lines[number].startswith(folded_lines[entries[0]])
            ):
                break
            if _is_met_again(folded_lines[number], later):
                entries.append(number)
            # From here on each line is looked for below itself.
            del later[bisect_left(later, folded_lines[number])]
        if len(entries) >= _FEWEST:
            contents.update(range(start, entries[-1] + 1))
    return contents


def _is_met_again(line: str, sorted_lines: Sequence[str]) -> bool:
    """Whether a line stands twice in these, or begins another one that was broken elsewhere."""
    position = bisect_left(sorted_lines, line)
    after = sorted_lines[position + 1 : position + 2]
    return bool(after) and (after[0] == line or (len(line) >= _CUT_ENTRY and after[0].startswith(line)))


def find_index(pages: Sequence[Sequence[str]], labels: Collection[str]) -> list[tuple[int, int]]:
    """Return for each page of the back-of-book index which it is and from which line on.

    The index stands in the second half of the document. It has a heading or rows of dots, and pages belong to
    it as long as many of their lines end in numbers of pages that there are.
    """
    known_labels = {label.casefold() for label in labels}
    index_starts: list[tuple[int, int]] = []
    for number in range(len(pages) // 2, len(pages)):
        page = pages[number]
        starts = [position for position, line in enumerate(page) if is_index_heading(line)]
        goes_on = bool(index_starts) and index_starts[-1][0] == number - 1
        if goes_on or _count_entries(page, known_labels)[1] >= _LEAST_DOTTED:
            starts.insert(0, 0)
        fewest = 1 if goes_on else _FEWEST
        start = next(
            (position for position in starts if _is_index(page[position:], known_labels, fewest)), None
        )
        if start is not None:
            index_starts.append((number, start))
    return index_starts


def _is_index(lines: Sequence[str], labels: Collection[str], fewest: int) -> bool:
    entries, _ = _count_entries(lines, labels)
    # Single letters head its parts.
    count = sum(len(line.strip()) > 1 for line in lines)
    return entries >= fewest and entries >= _INDEX_ENTRIES * count


def _count_entries(lines: Sequence[str], labels: Collection[str]) -> tuple[int, int]:
    """Return how many lines end in pages that there are, and how many of them after a row of dots."""
    entries = dotted_entries = 0
    for line in lines:
        if len(line) > _LONGEST:
            continue
        dots = _DOTTED_INDEX_ENTRY.search(line)
        if entry := dots or _INDEX_ENTRY.match(line):
            numbers = [re.match(_PAGE, page.strip()) for page in entry[1].split(",")]
            is_entry = all(page and page[0].casefold() in labels for page in numbers)
            entries += is_entry
            dotted_entries += bool(is_entry and dots)
    return entries, dotted_entries


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


def _page_order(page: str) -> int:
    """Return a number that rises with the page: small roman ones come first, those of appendices last."""
    if page.isdecimal():
        return 10_000 + int(page)
    if page.islower():
        values = [_ROMAN[letter] for letter in page]
        return sum(
            -value if value < next_value else value
            for value, next_value in zip(values, [*values[1:], 0], strict=True)
        )
    digits = re.search(r"[0-9]+$", page)
    return 100_000 * (ord(page[0]) - ord("A") + 1) + int(digits[0] if digits else 0)
