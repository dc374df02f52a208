"""PDF: its text as paragraphs under the headings of its outline, each with its page's printed number.

Left out, and counted in a note: running headers and footers, tables of contents, the index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from corag.core.errors import DataError
from corag.core.sentences import sentence_end
from retrieval.documents.contents import (
    NUMBERING,
    find_contents,
    find_index,
    find_repeated_contents,
    fold,
    is_contents_heading,
    is_index_heading,
)
from retrieval.documents.document import Document, Writer, describe_unread, stated_title
from retrieval.documents.pdf_pages import Line, OutlineEntry, Page, PdfContents, read_contents
from retrieval.documents.plain import join_lines, paragraphs, unbroken_words, usual_width

_EDGE = 2  # lines at the top and at the bottom of a page that may be running ones
_LEAST_REPEATS = 3  # pages on which such a line must stand
_NUMBER = re.compile(r"(?<!\d)\d{1,9}(?!\d)")
_SENTENCE_END = (".", "!", "?", ":", ";", "”", '"')
_TITLE_LINES = 4  # that a printed heading fills at most, with its number
_ABOVE = 4.0  # points that a heading may stand above the place to which its outline leads
# What is printed before a heading and missing in the outline: "4.1", "Chapter 4", "CHAPTER FOUR", "A.".
_NUMBERING = re.compile(
    r"(?:(?:[^\W\d_]+ )?(?:[0-9]+|[IVXLC]+|[A-Z])(?:\.[0-9]+)*[.:)]?"
    r"|(?i:chapter|part|appendix|annex) [\w-]+)(?: ?[-–—:])?"
)
_NUMBERING_BEFORE = re.compile(rf"(?:{_NUMBERING.pattern})(?= )")
_HEADER_PARTS = re.compile(r"\s*(?:…|\.{3}|\||—|•)\s*|\s+(?=[0-9]+(?:\.[0-9]+)+\.? )")
_AROUND_NUMBER = " -–—[]()|·•"
_CUT_TITLE = 8  # letters of a title at least that a header must have
_COLUMN = 6.0  # points within which the right parts of lines in two columns begin
_COLUMN_LINES = 6  # of a page at least that are drawn over two columns, and
_COLUMN_SHARE = 0.4  # of its lines
_COLUMN_WORDS = 3  # of each part at least, on average: a table's cells have fewer
_UNMAPPED_SHARE = 0.05  # of the characters: fonts that do not say their letters


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading, and the line of its page that it stands before; ``lines``: how many are printed of it."""

    level: int
    title: str
    place: int
    lines: int


def read_pdf(data: bytes, title: str) -> Document:
    """Read a PDF that has text: pictures of pages need to be recognised (OCR) first.

    Raises :class:`DataError` if it is broken, asks for a password or has no text.
    """
    contents = read_contents(data)
    pages = contents.pages
    writer = Writer(title)
    writer.notes += describe_unread(
        {f"page {number}": page.problem for number, page in enumerate(pages, 1) if page.problem}
    )
    if not any(page.lines for page in pages):
        raise DataError(
            f"there is no text in its {len(pages)} pages: are they pictures? Recognise the text (OCR) first."
        )
    writer.title, outline = _title(contents, title)
    if blank := sum(not page.lines for page in pages):
        writer.notes.append(f"{blank} of {len(pages)} pages have no text")
    _Layout(pages, outline, writer).write()
    writer.notes += _doubts(contents)
    return writer.document()


def _title(contents: PdfContents, otherwise: str) -> tuple[str, list[OutlineEntry]]:
    """Return the document's title, and the outline without an entry that only repeats it above all others."""
    outline = contents.outline
    title = stated_title(contents.title, "")
    if len(outline) > 1 and [entry.level for entry in outline].count(0) == 1 and outline[0].level == 0:
        root = stated_title(outline[0].title, "")
        if not title or not root or fold(root) == fold(title):
            return title or root or otherwise, outline[1:]
    return title or otherwise, outline


def _doubts(contents: PdfContents) -> list[str]:
    """Return what in its pages was drawn so that their text may be wrong."""
    notes = []
    if columns := sum(map(_has_mixed_columns, contents.pages)):
        notes.append(f"{columns} page(s) are drawn line by line over two columns, which may be mixed")
    if contents.unmapped > _UNMAPPED_SHARE:
        notes.append(
            f"its text may be garbled: the fonts of {contents.unmapped:.0%} of its characters do not say "
            "which letters they are"
        )
    if contents.lost_entries:
        notes.append(f"{contents.lost_entries} heading(s) of its outline lead to no page")
    return notes


def _has_mixed_columns(page: Page) -> bool:
    """Whether lines of a page go over two columns of text: a wide blank always ends at the same place."""
    lines = [line.columns for line in page.lines if line.columns]
    places = Counter(round(x / _COLUMN) for _, _, x in lines)
    if not places:
        return False
    position = max(places, key=lambda one: places[one] + places[one + 1])
    parts = [(left, right) for left, right, x in lines if round(x / _COLUMN) in (position, position + 1)]
    if len(parts) < max(_COLUMN_LINES, _COLUMN_SHARE * len(page.lines)):
        return False
    return all(
        sum(len(part[side].split()) for part in parts) >= _COLUMN_WORDS * len(parts) for side in (0, 1)
    )


class _Layout:
    """Tells headings, running lines, contents and text apart, and writes what is to be read.

    The pages' lines stay as they are; what is left out is a set of (page, line), each counted from 0.
    """

    def __init__(self, pages: Sequence[Page], outline: Sequence[OutlineEntry], writer: Writer) -> None:
        self._pages = [page.lines for page in pages]
        self._texts = [[line.text for line in page.lines] for page in pages]
        self._labels = [page.label for page in pages]
        self._writer = writer
        titles = [entry.title for entry in outline]
        self._titles = {fold(form) for title in titles for form in (title, NUMBERING.sub("", title))} - {""}
        self._sections = self._place_sections(outline)
        self._heading_lines = {
            (number, position)
            for number, sections in self._sections.items()
            for section in sections
            for position in range(section.place, section.place + section.lines)
        }
        self._left_out: set[tuple[int, int]] = set()

    def write(self) -> None:
        """Write the text under its headings, and count what is left out."""
        self._leave_out("running headers and footers", self._running_lines())
        self._leave_out("tables of contents", self._contents())
        self._leave_out("index", self._index())
        words = unbroken_words([line for page in self._texts for line in page])
        for entry in self._join_lines(words):
            if isinstance(entry, _Section):
                self._writer.heading(entry.level, entry.title)
            else:
                number, paragraph = entry
                self._writer.block(paragraph, page=self._labels[number])

    def _leave_out(self, what: str, places: Collection[tuple[int, int]]) -> None:
        for number, position in places:
            if (number, position) not in self._heading_lines:
                words = self._texts[number][position].split()
                # Dots that lead to a page number are no words.
                self._writer.leave_out(what, " ".join(word for word in words if any(map(str.isalnum, word))))
                self._left_out.add((number, position))

    def _place_sections(self, outline: Sequence[OutlineEntry]) -> Mapping[int, list[_Section]]:
        """Find the lines at which the outline's sections begin, by page."""
        sections_by_page: dict[int, list[_Section]] = {}
        for entry in outline:
            if any(map(str.isalnum, entry.title)):
                sections_by_page.setdefault(entry.page, []).append(
                    _place_section(entry, self._pages[entry.page])
                )
        for sections in sections_by_page.values():
            sections.sort(key=lambda section: section.place)
        return sections_by_page

    def _running_lines(self) -> set[tuple[int, int]]:
        """Find what stands at the edge of several pages, be it with a number that rises with the page."""
        page_counts: Counter[str] = Counter()
        for number, page in enumerate(self._texts):
            edge = [*page[:_EDGE], *page[-_EDGE:]] if len(page) > 2 * _EDGE else []
            page_counts.update({form for line in edge for form in _forms(line, number)})
        return {
            (number, position)
            for number, page in enumerate(self._texts)
            for position, line in enumerate(page)
            if not _EDGE <= position < len(page) - _EDGE
            and (
                max(page_counts[form] for form in _forms(line, number)) >= _LEAST_REPEATS
                or (position in (0, len(page) - 1) and self._is_page_line(line, number))
            )
        }

    def _is_page_line(self, line: str, number: int) -> bool:
        """Whether a line at a page's edge is its number, or names the section, with or without it."""
        label = str(self._labels[number])
        if len(self._pages) < _LEAST_REPEATS:
            return False
        if line.strip(_AROUND_NUMBER) == label:
            return True
        without = re.sub(rf"^{re.escape(label)}\s+|\s+{re.escape(label)}$", "", line)
        parts = [part for part in _HEADER_PARTS.split(without) if part]
        has_label = without != line
        return bool(parts) and all(self._names_section(part, needs_number=not has_label) for part in parts)

    def _names_section(self, text: str, *, needs_number: bool) -> bool:
        """Whether a part of a header is a section's title, which may be cut short."""
        numbering = _NUMBERING_BEFORE.match(text)
        rest = fold(text[numbering.end() :] if numbering else text)
        if needs_number and not numbering:
            return False
        if {fold(text), rest} & self._titles or is_contents_heading(text) or is_index_heading(text):
            return True
        return len(rest) >= _CUT_TITLE and any(title.startswith(rest) for title in self._titles)

    def _contents(self) -> set[tuple[int, int]]:
        places = self._places()
        lines = [self._texts[number][position] for number, position in places]
        labels = {str(label) for label in self._labels}
        contents = find_contents(lines, labels, self._titles) | find_repeated_contents(lines)
        return {places[line] for line in contents}

    def _index(self) -> set[tuple[int, int]]:
        places = self._places()
        pages: list[list[tuple[int, int]]] = [[] for _ in self._pages]
        for number, position in places:
            pages[number].append((number, position))
        texts = [[self._texts[number][position] for number, position in page] for page in pages]
        starts = find_index(texts, {str(label) for label in self._labels})
        return {position for number, start in starts for position in pages[number][start:]}

    def _places(self) -> list[tuple[int, int]]:
        return [
            (number, position)
            for number, page in enumerate(self._pages)
            for position in range(len(page))
            if (number, position) not in self._left_out
        ]

    def _join_lines(self, words: Collection[str]) -> Iterator[_Section | tuple[int, str]]:
        """Yield headings, and paragraphs with the page on which they begin, counted from 0.

        A sentence that a page's end cuts belongs to where it begins.
        """
        width = usual_width([line for page in self._texts for line in page])
        open_paragraph: tuple[int, str] | None = None
        for number, page in enumerate(self._texts):
            for section, lines in self._segments(number, page):
                if section:
                    if open_paragraph:
                        yield open_paragraph
                        open_paragraph = None
                    # Contents and index that were left out leave a heading with nothing below it.
                    if not lines and is_contents_heading(section.title):
                        self._writer.leave_out("tables of contents", section.title)
                    elif not lines and is_index_heading(section.title):
                        self._writer.leave_out("index", section.title)
                    else:
                        yield section
                for position, paragraph in enumerate(paragraphs(lines, width, words=words)):
                    rest = paragraph
                    if open_paragraph:
                        page_before, text = open_paragraph
                        if position == 0 and paragraph[0].islower() and not text.endswith(_SENTENCE_END):
                            end = sentence_end(paragraph)
                            text = join_lines([text, paragraph[:end]], words=words)
                            open_paragraph = page_before, text
                            rest = paragraph[end:].strip()
                        if rest:
                            yield page_before, text
                    if rest:
                        open_paragraph = number, rest
        if open_paragraph:
            yield open_paragraph

    def _segments(self, number: int, page: Sequence[str]) -> Iterator[tuple[_Section | None, list[str]]]:
        """Divide a page at the headings on it: each with the lines below it, None with those above."""
        sections = self._sections.get(number, [])
        starts = [0, *(section.place for section in sections), len(page)]
        for at, section in enumerate([None, *sections]):
            places = range(starts[at], starts[at + 1])
            lines = [
                page[position]
                for position in places
                if (number, position) not in self._left_out and (number, position) not in self._heading_lines
            ]
            if section or lines:
                yield section, lines


def _place_section(entry: OutlineEntry, lines: Sequence[Line]) -> _Section:
    """Find a heading on the page that the outline names: by its words, else by its place."""
    level = entry.level + 2  # the first is the document's title's
    title = fold(entry.title)
    below = [
        position
        for position, line in enumerate(lines)
        if entry.height is None or line.height <= entry.height + _ABOVE
    ]
    for position in below:
        for count in range(1, _TITLE_LINES + 1):
            heading = " ".join(line.text for line in lines[position : position + count])
            numbering = _numbering(heading, title)
            if numbering is not None:
                return _Section(level, f"{numbering} {entry.title}".strip(), position, count)
    return _Section(level, entry.title, below[0] if below and entry.height is not None else 0, 0)


def _numbering(heading: str, title: str) -> str | None:
    """Return what stands before a title in a printed heading, "" for nothing; None if it is another one."""
    letters = fold(heading)
    if not letters.endswith(title):
        return None
    before = len(letters) - len(title)
    if not before:
        return ""
    end, count = 0, 0
    while count < before:
        count += len(fold(heading[end]))
        end += 1
    numbering = heading[:end] + (re.match(r"[.:)]*", heading[end:]) or [""])[0]
    return numbering if _NUMBERING.fullmatch(numbering) else None


def _forms(line: str, page: int) -> list[str]:
    """Return what a running line has in common with itself on other pages.

    The line as it stands, or one of its numbers counted from the page's. Were all numbers taken for page
    numbers, the rows of a table would be running lines.
    """
    text = " ".join(line.split())
    return [text] + [
        f"{text[: number.start()]}#{int(number[0]) - page}#{text[number.end() :]}"
        for number in _NUMBER.finditer(text)
    ]
