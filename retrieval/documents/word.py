"""Word's .docx: paragraphs, lists and tables under their headings.

python-docx opens the file and knows its styles. The text is taken from the XML below it, since python-docx
passes over what stands in content controls, text boxes and tracked insertions. Headers, footers, footnotes
and comments are left out.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile

import docx
from docx.opc.exceptions import PackageNotFoundError
from docx.oxml.ns import qn
from lxml.etree import XMLSyntaxError

from core.errors import DataError
from retrieval.documents.document import Document, Writer, stated_title

_OLE = bytes.fromhex("d0cf11e0")  # what Word before 2007 wrote, and what an encrypted .docx is wrapped in
_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)
_TITLE = 0  # above the headings, of which the highest is 1
_TEXT, _HYPHEN, _PARAGRAPH = qn("w:t"), qn("w:noBreakHyphen"), qn("w:p")
_TABS = frozenset((qn("w:tab"), qn("w:ptab")))
_BREAKS = frozenset((qn("w:br"), qn("w:cr")))
_TABLE, _ROW, _CELL = qn("w:tbl"), qn("w:tr"), qn("w:tc")
# What stands around paragraphs, rows and cells: content controls, tracked insertions.
_WRAPPERS = frozenset((qn("w:sdt"), qn("w:sdtContent"), qn("w:customXml"), qn("w:ins")))
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
# Settings, text that was moved away, and a second form of a text box for programs that do not know the first.
_PASSED_OVER = frozenset(
    (
        qn("w:pPr"),
        qn("w:moveFrom"),
        "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
    )
)
_WIDEST_SPAN = 63  # columns, as in Word
_FIRST_ROW = 0x20  # the bit of an older table's look that makes its first row a header


@dataclass(frozen=True)
class _Kind:
    """What a paragraph is by its style: a heading of a level, an item of a list."""

    level: int | None = None
    listed: bool = False


def read_docx(data: bytes, title: str) -> Document:
    """Read a .docx. Raises :class:`DataError` for one that is encrypted, of an older Word, or broken."""
    if data.startswith(_OLE):
        raise DataError("it is encrypted or of a Word before 2007: save it as a .docx without a password.")
    try:
        opened: Any = docx.Document(io.BytesIO(data))
    except (BadZipFile, PackageNotFoundError, XMLSyntaxError, zlib.error, KeyError, ValueError):
        raise DataError("it is damaged, or no .docx: open it in Word and save it again.") from None
    writer = Writer(stated_title(opened.core_properties.title, title))
    _write(
        opened.element.body,
        writer,
        {style.style_id: kind for style in opened.styles if (kind := _kind(style))},
    )
    return writer.document()


def _kind(style: Any) -> _Kind | None:
    """Return what a style makes of a paragraph, or the style that it is based on; None for ordinary text."""
    while style is not None:
        if style.name == "Title":
            return _Kind(_TITLE)
        if heading := _HEADING.fullmatch(style.name or ""):
            return _Kind(int(heading[1]))
        if style.element.find(f"{qn('w:pPr')}/{qn('w:numPr')}") is not None:
            return _Kind(listed=True)
        style = getattr(style, "base_style", None)
    return None


def _write(body: Any, writer: Writer, kinds: Mapping[str, _Kind]) -> None:
    for element in _in_order(body, _PARAGRAPH, _TABLE):
        if element.tag == _PARAGRAPH:
            _write_paragraph(element, writer, kinds)
        else:
            _write_table(element, writer, kinds)


def _in_order(parent: Any, *tags: str) -> Iterator[Any]:
    """Yield elements of these tags, those in content controls included."""
    for element in parent.iterchildren():
        if element.tag in tags:
            yield element
        elif element.tag in _WRAPPERS:
            yield from _in_order(element, *tags)


def _write_paragraph(paragraph: Any, writer: Writer, kinds: Mapping[str, _Kind]) -> None:
    text = _text(paragraph)
    kind = kinds.get(paragraph.style, _Kind())
    if kind.level is not None:
        writer.heading(kind.level, text)
    elif text.strip():
        listed = kind.listed or paragraph.find(f"{qn('w:pPr')}/{qn('w:numPr')}") is not None
        writer.block(f"- {text}" if listed else text)


def _write_table(table: Any, writer: Writer, kinds: Mapping[str, _Kind]) -> None:
    rows = [list(_in_order(row, _CELL)) for row in _in_order(table, _ROW)]
    if len(rows) < 2 or max(map(len, rows)) < 2:  # it frames or places text
        for cell in (cell for row in rows for cell in row):
            _write(cell, writer, kinds)
        return
    header = _has_header(table, max(map(len, rows)))
    writer.table(_grid(rows, header=header), header=header)


def _grid(rows: Sequence[Sequence[Any]], *, header: bool) -> list[list[str]]:
    """Return the texts of cells, each in its column.

    A cell over several rows counts in each. One over several columns names all of them in a header, and else
    stands in the first.
    """
    grid: list[list[str]] = []
    above: dict[int, str] = {}
    for row in rows:
        texts: list[str] = []
        for cell in row:
            span, merged = (cell.find(f"{qn('w:tcPr')}/{qn(name)}") for name in ("w:gridSpan", "w:vMerge"))
            goes_on = merged is not None and merged.get(qn("w:val"), "continue") == "continue"
            text = above.get(len(texts), "") if goes_on else _text(cell)
            above[len(texts)] = text
            width = "1" if span is None else span.get(qn("w:val"), "1")
            repeated = text if header and not grid else ""
            texts += [text] + [repeated] * (min(int(width), _WIDEST_SPAN) - 1 if width.isdecimal() else 0)
        grid.append(texts)
    return grid


def _has_header(table: Any, columns: int) -> bool:
    first = next(_in_order(table, _ROW))
    if first.find(f"{qn('w:trPr')}/{qn('w:tblHeader')}") is not None:
        return True
    # Word gives every table a look with a first row of its own. In two columns there mostly are names and
    # values, whose first row is no header.
    if columns < 3:
        return False
    look = table.find(f"{qn('w:tblPr')}/{qn('w:tblLook')}")
    if look is None:
        return False
    stated = look.get(qn("w:firstRow"))
    return stated in ("1", "true", "on") if stated else bool(int(look.get(qn("w:val"), "0"), 16) & _FIRST_ROW)


def _text(element: Any) -> str:
    """Return all text below an element; paragraphs within it are lines."""
    return "".join(_parts(element)).strip()


def _parts(element: Any) -> Iterator[str]:
    for child in element.iterchildren():
        if child.tag in (_TEXT, _MATH):
            yield child.text or ""
        elif child.tag in _TABS:
            yield "\t"
        elif child.tag == _HYPHEN:
            yield "-"
        elif child.tag in _BREAKS:
            yield "\n"
        elif child.tag not in _PASSED_OVER:
            yield from _parts(child)
            if child.tag == _PARAGRAPH:
                yield "\n"
