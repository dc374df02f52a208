"""PDF: its text as paragraphs under headings, each with its page's printed number.

Left out, and counted in a note: running headers and footers, tables of contents.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from corag.core.errors import DataError
from corag.core.language.sentences import sentence_end
from retrieval.documents.contents import NUMBERING, find_contents, fold, is_contents_heading
from retrieval.documents.document import Document, Writer, describe_unread, stated_title
from retrieval.documents.left_out import CONTENTS, EDGES, LOST_HEADINGS
from retrieval.documents.pdf_pages import Line, OutlineEntry, Page, PdfContents, read_contents
from retrieval.documents.pdf_sections import Heading, find_sections, place_sections, usual_size
from retrieval.documents.plain import FULL_LINE, Hyphens, join_lines, paragraphs, usual_width

_EDGE = 2  # lines at the top and at the bottom of a page that may be running ones
_LEAST_REPEATS = 3  # pages on which such a line must stand
_SAME_HEIGHT = 12.0  # points: a line's
_NUMBER = re.compile(r"(?<!\d)\d{1,9}(?!\d)")
_SENTENCE_END = (".", "!", "?", ":", ";", "”", '"')
_AROUND_NUMBER = " -–—[]()|·•"


def read_pdf(data: bytes, title: str) -> Document:
    """Read a PDF that has text: pictures of pages need to be recognised (OCR) first.

    Raises :class:`DataError` if it is broken, asks for a password or has no text.
    """
    contents = read_contents(data)
    pages = contents.pages
    own_title, outline = _title(contents)
    writer = Writer(own_title or title, is_title_stated=bool(own_title))
    writer.notes += describe_unread(
        {f"page {number}": page.problem for number, page in enumerate(pages, 1) if page.problem}
    )
    if not any(page.lines or page.beside.fields for page in pages):
        raise DataError(
            f"there is no text in its {len(pages)} pages: are they pictures? Recognise the text (OCR) first."
        )
    if blank := sum(not (page.lines or page.beside.fields) for page in pages):
        writer.notes.append(f"{blank} of {len(pages)} pages have no text")
    _Layout(pages, outline, writer).write()
    for left_out in (contents.left_out, *(page.beside.left_out for page in pages)):
        for kind, count in left_out.items():
            writer.pass_over(kind, count)
    return writer.document()


def _title(contents: PdfContents) -> tuple[str, list[OutlineEntry]]:
    """Return the title that the document states, if any, and the outline without an entry that repeats it."""
    outline = contents.outline
    title = stated_title(contents.title, "")
    if len(outline) > 1 and [entry.level for entry in outline].count(0) == 1 and outline[0].level == 0:
        root = stated_title(outline[0].title, "")
        if not title or not root or fold(root) == fold(title):
            return title or root, outline[1:]
    return title, outline


class _Layout:
    """Tells headings, running lines, contents and text apart, and writes what is to be read.

    The pages' lines stay as they are; what is left out is a set of (page, line), each counted from 0.
    """

    def __init__(self, pages: Sequence[Page], outline: Sequence[OutlineEntry], writer: Writer) -> None:
        self._pages = [page.lines for page in pages]
        self._texts = [[line.text for line in page.lines] for page in pages]
        self._labels = [page.label for page in pages]
        self._fields = [page.beside.fields for page in pages]
        self._writer = writer
        lines = [line for page in self._texts for line in page]
        self._width, self._hyphens = usual_width(lines), Hyphens(lines)
        self._running = self._running_lines()
        self._sections = place_sections(pages, outline) if outline else find_sections(pages, self._running)
        if outline:
            named = sum(any(map(str.isalnum, entry.title)) for entry in outline)
            writer.pass_over(LOST_HEADINGS, named - sum(map(len, self._sections.values())))
        sections = [(number, section) for number in self._sections for section in self._sections[number]]
        self._heading_lines = {
            (number, position)
            for number, section in sections
            for position in range(section.place, section.place + section.lines)
        }
        titles = [form for _, one in sections for form in (one.title, NUMBERING.sub("", one.title))]
        self._titles = set(map(fold, titles)) - {""}
        self._left_out: set[tuple[int, int]] = set()

    def write(self) -> None:
        """Write the text under its headings, and count what is left out."""
        self._leave_out(EDGES, self._running)
        self._leave_out(CONTENTS, self._contents())
        for number, entry in self._join_lines():
            if isinstance(entry, Heading):
                self._writer.heading(entry.level, entry.title, page=self._labels[number])
            else:
                self._writer.block(entry, page=self._labels[number])

    def _leave_out(self, what: str, places: Collection[tuple[int, int]]) -> None:
        for number, position in places:
            if (number, position) not in self._heading_lines:
                words = self._texts[number][position].split()
                # Dots that lead to a page number are no words.
                self._writer.leave_out(what, " ".join(word for word in words if any(map(str.isalnum, word))))
                self._left_out.add((number, position))

    def _running_lines(self) -> set[tuple[int, int]]:
        """Find what stands at the edge of several pages, be it with a number that rises with the page."""
        paragraphs = self._repeated_paragraphs()
        edges = {
            (number, position): _forms(page[position].text, number)
            for number, page in enumerate(self._pages)
            for position in _edge(page)
            if (number, position) not in paragraphs
        }
        inner_counts = Counter(line for page in self._texts for line in page)
        inner_counts.subtract(self._texts[number][position] for number, position in edges)
        places = {
            (number, form, round(self._pages[number][position].height / _SAME_HEIGHT))
            for (number, position), forms in edges.items()
            for form in forms
            if len(self._pages[number]) > 2 * _EDGE
        }
        counts = Counter((form, height) for _, form, height in places)
        # What stands as often within pages is text.
        running = {form for (form, _), n in counts.items() if n >= _LEAST_REPEATS and n > inner_counts[form]}
        return {
            (number, position)
            for (number, position), forms in edges.items()
            if not running.isdisjoint(forms)
            or (position in (0, len(self._texts[number]) - 1) and self._is_page_number(number, position))
        }

    def _repeated_paragraphs(self) -> set[tuple[int, int]]:
        """Find lines that stand together on several pages, and are no running ones.

        They are as large as the text, fill its width, and go on so or in a line that ends a sentence.
        """
        repeats = Counter(line for page in self._texts for line in set(page))
        size = usual_size(line for page in self._pages for line in page)
        found: set[tuple[int, int]] = set()
        for number, page in enumerate(self._pages):
            is_text = [repeats[line.text] >= _LEAST_REPEATS and line.size >= size for line in page]
            is_full = [len(line.text) >= FULL_LINE * self._width for line in page]
            for position, following in enumerate(page[1:]):
                goes_on = is_full[position + 1] or following.text.endswith(_SENTENCE_END)
                if is_full[position] and goes_on and all(is_text[position : position + 2]):
                    found |= {(number, position), (number, position + 1)}
        return found

    def _is_page_number(self, number: int, position: int) -> bool:
        text = self._texts[number][position].strip(_AROUND_NUMBER)
        return len(self._pages) >= _LEAST_REPEATS and text == str(self._labels[number])

    def _contents(self) -> set[tuple[int, int]]:
        places = [
            (number, position)
            for number, page in enumerate(self._texts)
            for position in range(len(page))
            if (number, position) not in self._left_out
        ]
        lines = [self._texts[number][position] for number, position in places]
        contents = find_contents(lines, {str(label) for label in self._labels}, self._titles)
        return {places[line] for line in contents}

    def _join_lines(self) -> Iterator[tuple[int, Heading | str]]:
        """Yield headings and paragraphs, each with the page on which it begins, counted from 0.

        A sentence that a page's end cuts belongs to where it begins. What is filled in stands below the page.
        """
        open_paragraph: tuple[int, str] | None = None
        for number, page in enumerate(self._texts):
            for section, lines in self._segments(number, page):
                if section:
                    if open_paragraph:
                        yield open_paragraph
                        open_paragraph = None
                    # Contents that were left out leave a heading with nothing below it.
                    if not lines and is_contents_heading(section.title):
                        self._writer.leave_out(CONTENTS, section.title)
                    else:
                        yield number, section
                for position, paragraph in enumerate(paragraphs(lines, self._width, self._hyphens)):
                    rest = paragraph
                    if open_paragraph:
                        page_before, text = open_paragraph
                        if position == 0 and paragraph[0].islower() and not text.endswith(_SENTENCE_END):
                            end = sentence_end(paragraph)
                            text = join_lines([text, paragraph[:end]], self._hyphens)
                            open_paragraph = page_before, text
                            rest = paragraph[end:].strip()
                        if rest:
                            yield page_before, text
                    if rest:
                        open_paragraph = number, rest
            if open_paragraph and self._fields[number]:
                yield open_paragraph
                open_paragraph = None
            yield from ((number, field) for field in self._fields[number])
        if open_paragraph:
            yield open_paragraph

    def _segments(self, number: int, page: Sequence[str]) -> Iterator[tuple[Heading | None, list[str]]]:
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


def _edge(page: Sequence[Line]) -> list[int]:
    """Return the first and last lines of a page, and the highest and lowest: some are drawn out of order."""
    heights = sorted({line.height for line in page})
    extremes = {*heights[:_EDGE], *heights[-_EDGE:]}
    return [
        position
        for position, line in enumerate(page)
        if not _EDGE <= position < len(page) - _EDGE or line.height in extremes
    ]


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
