"""Plain text: bytes to characters, hard line breaks to paragraphs."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from core.errors import DataError
from retrieval.documents.document import Document, Writer, clean

# The longer marks first: that of UTF-32 begins as that of UTF-16 does.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What these names stand for on the web: their controls from 0x80 on are curly quotes and dashes.
_CP1252 = frozenset(("iso-8859-1", "iso8859-1", "latin-1", "latin1", "l1", "us-ascii", "ascii"))
_WIDEST = 160  # characters; longer lines were not broken to fit a page
_FILLED = 0.7  # of the usual width: a shorter line was ended by its writer
_ITEM = re.compile(r"\s*(?:[-*•–·▪◦]|\(?\w{1,2}[.)]|\d+(?:\.\d+)+\.?)\s")  # or a numbered heading


def read_text(data: bytes, title: str) -> Document:
    """Read a text file: paragraphs, lists and lines as they stand."""
    text, note = decode(data)
    writer = Writer(title)
    writer.notes += [note] if note else []
    lines = clean(text).split("\n")
    for paragraph in paragraphs(lines, usual_width(lines)):
        writer.block(paragraph)
    return writer.document()


def decode(data: bytes, declared: str = "") -> tuple[str, str]:
    """Return a file's text, and a note if its encoding had to be guessed.

    UTF-8 is tried first, since what is valid UTF-8 hardly ever is anything else; then what the file declares,
    then cp1252, which is Latin-1 with curly quotes. Raises :class:`DataError` for what is no text.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding).removeprefix("\ufeff"), ""
            except UnicodeDecodeError:
                raise DataError(
                    f"its first bytes announce {encoding.upper()}, but it is not: save it as UTF-8."
                ) from None
    if b"\0" in data:
        raise DataError("it is binary data or UTF-16 without a mark, not text: save it as UTF-8.")
    for encoding in ("utf-8", "cp1252" if declared.lower() in _CP1252 else declared):
        try:
            return data.decode(encoding), ""
        except (UnicodeDecodeError, LookupError, ValueError):
            continue
    other = declared.lower() not in ("", "utf-8", "utf8")
    instead = f"neither UTF-8 nor {declared}, which it declares" if other else "not UTF-8"
    try:
        return data.decode("cp1252"), f"{instead}: read as cp1252 (Latin-1)"
    except UnicodeDecodeError:
        return data.decode("latin-1"), f"{instead}: read as Latin-1"


def usual_width(lines: Sequence[str]) -> int:
    """Return how wide the lines of a text are, but for the longest of them; 0 if there is none."""
    lengths = sorted(len(line) for line in lines if line.strip())
    return lengths[len(lengths) * 9 // 10] if lengths else 0


def paragraphs(lines: Sequence[str], width: int, *, hyphenated: bool = False) -> Iterator[str]:
    """Join lines that were broken to fit a page of ``width`` characters; blank lines end a paragraph.

    ``hyphenated``: a hyphen at a line's end before a small letter is the printer's, and goes.
    """
    paragraph: list[str] = []
    for line in map(str.strip, lines):
        # A line of dashes or dots is a ruler, so ends a paragraph too.
        drawn = not any(map(str.isalnum, line))
        if paragraph and (drawn or not _goes_on(paragraph[-1], line, width)):
            yield join_lines(paragraph, hyphenated=hyphenated)
            paragraph = []
        if not drawn:
            paragraph.append(line)
    if paragraph:
        yield join_lines(paragraph, hyphenated=hyphenated)


def join_lines(lines: Sequence[str], *, hyphenated: bool) -> str:
    """Join the lines of a paragraph, and the halves of words that were broken between them."""
    parts = []
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        if line.endswith("-") and line[-2:-1].isalpha() and following[:1].isalpha():
            parts.append(line[:-1] if hyphenated and following[:1].islower() else line)
        else:
            parts.append(f"{line} ")
    return "".join(parts).rstrip()


def _goes_on(line: str, following: str, width: int) -> bool:
    if width > _WIDEST or _ITEM.match(following):
        return False
    if len(line) >= _FILLED * width:
        return True
    return following[:1].islower() and not line.endswith((".", "!", "?", ":", ";"))
