"""What PDFium reads from a PDF: the lines of its pages as they are drawn, its outline and its page labels."""

from __future__ import annotations

import ctypes
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import hypot

import pypdfium2
from pypdfium2 import raw as pdfium

from corag.core.errors import DataError, reason
from retrieval.documents.document import clean
from retrieval.documents.left_out import ATTACHMENTS, LOST_HEADINGS, XFA
from retrieval.documents.pdf_annotations import BesideText, read_beside_text
from retrieval.documents.superscripts import InlineText

# It logs what it works around in outlines; what could not be read stands in the file's notes.
logging.getLogger("pypdfium2").setLevel(logging.CRITICAL)

PDFIUM = threading.Lock()
"""PDFium must not be called by two threads at once."""

_HYPHENS = "\x02\ufffe"  # how PDFium writes a hyphen at a line's end, after which it goes on without a break
_LEAST_SHIFT, _MOST_SHIFT = 0.08, 0.9  # of a superscript or subscript, in parts of its line's font size
_SCRIPT_SHIFT = 0.6  # the same where only it tells that a line goes on
_SMALLER = 0.85  # its font size at most, in parts of the line's
_WIDE_GAP = 1.4  # font sizes from a character's start to the next one's that no blank between two words fills
_LONGEST_FONT = 100  # bytes of a font's name
_BOLD = re.compile(rb"bold|black|heavy|demi|-medi|cmbx|cmssbx", re.IGNORECASE)  # the last two are LaTeX's
_STRAY_ACCENT = re.compile(r"(?<=\s)[\u0300-\u036f]+")  # with no letter below it
_DESTINATION_TOP = {  # by kind of view: which of a destination's numbers is its upper edge
    pdfium.PDFDEST_VIEW_XYZ: 1,
    pdfium.PDFDEST_VIEW_FITH: 0,
    pdfium.PDFDEST_VIEW_FITR: 3,
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it is drawn.

    Attributes:
        text: of the line.
        height: of its baseline above the page's lower edge, in points.
        size: of its type in points, as at its start and its end.
        bold: whether it is from start to end.
    """

    text: str
    height: float = 0.0
    size: float = 0.0
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page. ``label``: its printed number; ``problem``: why it cannot be read, "" if it can."""

    label: int | str
    lines: tuple[Line, ...] = ()
    beside: BesideText = field(default_factory=BesideText)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A heading of the outline.

    ``page`` counts from 0; ``height`` is that of its place above the page's lower edge in points, None if
    it is the whole page.
    """

    level: int
    title: str
    page: int
    height: float | None


@dataclass
class PdfContents:
    """A PDF's text and structure.

    Attributes:
        title: that of its properties, "" if there is none.
        pages: all of its pages.
        outline: its entries that lead to a page, in order.
        left_out: what else is in the file as a whole, by kind.
    """

    title: str
    pages: list[Page] = field(default_factory=list)
    outline: list[OutlineEntry] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_contents(data: bytes) -> PdfContents:
    """Read a PDF with PDFium. Raises :class:`DataError` if it is broken or asks for a password."""
    with PDFIUM:
        try:
            file = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as error:
            if error.err_code == pdfium.FPDF_ERR_PASSWORD:
                raise DataError("it is encrypted: save a copy without a password.") from None
            cause = reason(error).removeprefix("Failed to load document (PDFium: ").removesuffix(".")
            raise DataError(
                f"it is damaged, or no PDF ({cause.removesuffix(')')}): export or download it again."
            ) from None
        try:
            return _read(file)
        finally:
            file.close()


def _read(file: pypdfium2.PdfDocument) -> PdfContents:
    contents = PdfContents(_decode(lambda: file.get_metadata_value("Title")))
    contents.left_out[ATTACHMENTS] = file.count_attachments()
    contents.left_out[XFA] = file.get_formtype() == pdfium.FORMTYPE_XFA_FULL
    with suppress(pypdfium2.PdfiumError):
        file.init_forms()
    for number in range(len(file)):
        label = _page_label(file, number)
        try:
            page = file[number]
            text = page.get_textpage()
        except pypdfium2.PdfiumError as error:
            contents.pages.append(Page(label, problem=reason(error)))
            continue
        lines = tuple(_LineReader(text.raw).lines())
        contents.pages.append(Page(label, lines, read_beside_text(page)))
        text.close()
        page.close()
    _read_outline(file, contents)
    return contents


def _page_label(file: pypdfium2.PdfDocument, number: int) -> int | str:
    """Return the number printed on a page, as far as the file says it; else its count from 1."""
    label = _decode(lambda: file.get_page_label(number))
    if label.isascii() and label.isdecimal() and int(label):
        return int(label)
    return label or number + 1


def _decode(read: Callable[[], str]) -> str:
    """Return a text out of the file's properties, "" if its characters are broken."""
    try:
        return " ".join(clean(read()).split())
    except UnicodeDecodeError:
        return ""


def _read_outline(file: pypdfium2.PdfDocument, contents: PdfContents) -> None:
    for bookmark in file.get_toc():
        title = _decode(bookmark.get_title)
        place = bookmark.get_dest()
        page = place.get_index() if place else None
        if not place or page is None or not 0 <= page < len(contents.pages):
            contents.left_out[LOST_HEADINGS] += any(map(str.isalnum, title))
            continue
        kind, numbers = place.get_view()
        top = _DESTINATION_TOP.get(kind, len(numbers))
        height = numbers[top] if top < len(numbers) else None
        contents.outline.append(OutlineEntry(bookmark.level, title, page, height or None))


class _LineReader:
    """Reads a page's lines, character by character, since only places tell superscripts."""

    def __init__(self, text_page: pdfium.FPDF_TEXTPAGE) -> None:
        self._page = text_page
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._begin_line()

    def _begin_line(self) -> None:
        self._line = InlineText()
        self._parts: list[str] = []  # of the line since its last superscript or subscript
        self._script: list[str] | None = None  # the superscript or subscript that is being read
        self._raises = True  # whether it stands above the line
        self._base = 0.0  # the height of the line that it belongs to
        self._last: tuple[float, float, int] | None = None  # x, y and number of the last visible character
        self._height = 0.0
        self._size = 0.0

    def lines(self) -> Iterator[Line]:
        """Yield the page's lines that are not blank."""
        character = partial(pdfium.FPDFText_GetUnicode, self._page)
        after_break = False
        for number in range(pdfium.FPDFText_CountChars(self._page)):
            letter = chr(min(character(number), 0x10FFFF))
            if letter == "\n":
                after_break = True
            elif letter in _HYPHENS:
                self._add(number, "-")
                yield from self._end_line()
            elif letter.isspace():
                if not after_break and letter != "\r":
                    self._keep(letter)
            elif letter != "\0":
                if after_break and not self._goes_on(number):
                    yield from self._end_line()
                after_break = False
                self._add(number, letter)
        yield from self._end_line()

    def _goes_on(self, number: int) -> bool:
        """Whether a line goes on after a break: PDFium breaks it before and after some superscripts."""
        if self._last is None:
            return False
        x, y = self._origin(number)
        last_x, last_y, last = self._last
        size, last_size = self._font_size(number), self._font_size(last)
        larger = max(size, last_size)
        return (
            0 < x - last_x < _WIDE_GAP * larger
            and abs(y - last_y) < _SCRIPT_SHIFT * larger
            and min(size, last_size) <= _SMALLER * larger
        )

    def _keep(self, letter: str) -> None:
        (self._parts if self._script is None else self._script).append(letter)

    def _origin(self, number: int) -> tuple[float, float]:
        pdfium.FPDFText_GetCharOrigin(self._page, number, self._x, self._y)
        return self._x.value, self._y.value

    def _add(self, number: int, letter: str) -> None:
        x, y = self._origin(number)
        if self._last is None:
            self._height, self._size = y, self._font_size(number)
            self._type = self._type_of(number)
        else:
            _, last_y, last = self._last
            if self._script is not None:
                if abs(y - self._base) < abs(y - last_y):
                    self._end_script()
                    self._size = self._font_size(number)
            elif abs(y - last_y) > _LEAST_SHIFT * self._size:
                self._change_baseline(number, y, last, last_y)
        self._keep(letter)
        self._last = x, y, number

    def _change_baseline(self, number: int, y: float, last: int, last_y: float) -> None:
        size, last_size = self._font_size(number), self._font_size(last)
        shift = (y - last_y) / max(last_size, 1e-6)
        if size <= _SMALLER * last_size and _LEAST_SHIFT < abs(shift) < _MOST_SHIFT:
            self._script, self._raises, self._base = [], shift > 0, last_y
        elif last_size <= _SMALLER * size and y < last_y and self._text().isdecimal():
            # The number of a footnote before its text.
            self._parts.append(" ")
            self._height, self._size = y, size

    def _end_script(self) -> None:
        script, self._script = "".join(self._script or ()), None
        self._line.add("".join(self._parts))
        if self._raises and not (script == "A" and self._parts[-1:] == ["L"]):  # the logo of LaTeX
            self._line.add_raised(script)
        elif self._raises:
            self._line.add(script)
        else:
            self._line.add_lowered(script)
        self._parts = [script[len(script.rstrip()) :]]

    def _text(self) -> str:
        """Return the line so far, but for a script that is being read."""
        return f"{self._line}{''.join(self._parts)}".strip()

    def _end_line(self) -> Iterator[Line]:
        if self._script is not None:
            self._end_script()
        self._line.add("".join(self._parts))
        if self._last and (text := _STRAY_ACCENT.sub("", clean(str(self._line).strip())).strip()):
            (size, bold), (last_size, last_bold) = self._type, self._type_of(self._last[2])
            yield Line(text, self._height, min(size, last_size), bold and last_bold)
        self._begin_line()

    def _font_size(self, number: int) -> float:
        """Return a character's font size in points: that of the font by how the text is scaled."""
        matrix = pdfium.FS_MATRIX()
        scale = 1.0
        if pdfium.FPDFText_GetMatrix(self._page, number, matrix):
            scale = hypot(matrix.c, matrix.d)
        return float(pdfium.FPDFText_GetFontSize(self._page, number)) * scale

    def _type_of(self, number: int) -> tuple[float, bool]:
        """Return a character's font size in tenths of a point, and whether it is bold."""
        name = ctypes.create_string_buffer(_LONGEST_FONT)
        pdfium.FPDFText_GetFontInfo(self._page, number, name, len(name), None)
        return round(self._font_size(number), 1), _BOLD.search(name.value) is not None
