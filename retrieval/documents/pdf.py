"""PDF: the text of its pages, without running headers and footers, as paragraphs with their page."""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from collections.abc import Sequence

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from core.errors import DataError, reason
from core.sentences import sentence_end
from retrieval.documents.document import Document, Writer, clean, stated_title
from retrieval.documents.plain import join_lines, paragraphs, usual_width

# It tells of every oddity that it works around; what could not be read is said here.
logging.getLogger("pypdf").setLevel(logging.CRITICAL)

_EDGE = 2  # lines at the top and at the bottom of a page that may be running ones
_REPEATED = 3  # pages on which such a line must stand
_NUMBER = re.compile(r"(?<!\d)\d{1,9}(?!\d)")
_SENTENCE_END = (".", "!", "?", ":", ";", "”", '"')


def read_pdf(data: bytes, title: str) -> Document:
    """Read a PDF that has text: pictures of pages need to be recognised (OCR) first.

    Raises :class:`DataError` if it is broken, asks for a password or has no text.
    """
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataError("it is encrypted: save a copy without a password.")
        count = len(reader.pages)
    except PyPdfError as error:
        raise DataError(f"it is damaged, or no PDF ({reason(error)}): export or download it again.") from None
    writer = Writer(title)
    try:
        writer.title = stated_title(reader.metadata and reader.metadata.title, title)
    except Exception:  # noqa: BLE001 - broken properties fail in many ways, and say nothing of the pages
        writer.notes.append("its properties cannot be read")
    pages = [_lines(reader, number, writer) for number in range(count)]
    if not any(pages):
        raise DataError(
            f"there is no text in its {len(pages)} pages: are they pictures? Recognise the text (OCR) first."
        )
    if blank := sum(not page for page in pages):
        writer.notes.append(f"{blank} of {len(pages)} pages have no text")
    for number, paragraph in _joined(_without_running_lines(pages)):
        writer.block(paragraph, page=number)
    return writer.document()


def _lines(reader: PdfReader, number: int, writer: Writer) -> list[str]:
    try:
        text = clean(reader.pages[number].extract_text())
    except Exception as error:  # noqa: BLE001 - a broken page fails anywhere in pypdf; the others are good
        writer.notes.append(f"page {number + 1} cannot be read ({reason(error)})")
        return []
    lines = text.strip().split("\n")
    return lines if lines != [""] else []


def _without_running_lines(pages: Sequence[list[str]]) -> list[list[str]]:
    """Leave out what stands at the edge of several pages, be it with a number that rises with the page."""
    seen: Counter[str] = Counter()
    for number, page in enumerate(pages):
        edge = [*page[:_EDGE], *page[-_EDGE:]] if len(page) > 2 * _EDGE else []
        seen.update({form for line in edge for form in _forms(line, number)})
    kept = []
    for number, page in enumerate(pages):
        last = len(page) - _EDGE
        kept.append(
            [
                line
                for place, line in enumerate(page)
                if len(page) <= 2 * _EDGE
                or _EDGE <= place < last
                or max(seen[form] for form in _forms(line, number)) < _REPEATED
            ]
        )
    return kept


def _forms(line: str, page: int) -> list[str]:
    """Return what a running line has in common with itself on other pages.

    The line as it stands, or one of its numbers counted from the page's. Were all numbers taken for page
    numbers, the rows of a table would be running lines.
    """
    squeezed = " ".join(line.split())
    return [squeezed] + [
        f"{squeezed[: found.start()]}#{int(found[0]) - page}#{squeezed[found.end() :]}"
        for found in _NUMBER.finditer(squeezed)
    ]


def _joined(pages: Sequence[list[str]]) -> list[tuple[int, str]]:
    """Return paragraphs with their pages; a sentence that a page's end cuts belongs to where it begins."""
    width = usual_width([line for page in pages for line in page])
    joined: list[tuple[int, str]] = []
    for number, lines in enumerate(pages, 1):
        for place, paragraph in enumerate(paragraphs(lines, width, hyphenated=True)):
            rest = paragraph
            if place == 0 and joined and paragraph[0].islower() and not joined[-1][1].endswith(_SENTENCE_END):
                end = sentence_end(paragraph)
                before, text = joined[-1]
                joined[-1] = (before, join_lines([text, paragraph[:end]], hyphenated=True))
                rest = paragraph[end:].strip()
            if rest:
                joined.append((number, rest))
    return joined
