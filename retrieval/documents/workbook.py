"""Excel's workbooks: the rows of each sheet, by openpyxl."""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from corag.core.errors import DataError, reason
from retrieval.documents.archive import DAMAGE, Archive
from retrieval.documents.document import Document, Writer, describe_unread
from retrieval.documents.left_out import (
    BARE_FORMULAS,
    CHARTS,
    COMMENTS,
    DRAWN_WORDS,
    EMBEDDED,
    HIDDEN_PARTS,
    HIDDEN_SHEETS,
    MERGED,
    PICTURES,
)
from retrieval.documents.rows import write_rows

_MOST_ROWS = 1 << 20  # of a sheet, as in Excel: a row of a higher number is made to fill a memory
# Of a number's format: text in it, and signs that stand for themselves.
_NO_CODES = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^]]*\]')
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z]{1,3}\d{1,7}:[A-Z]{1,3}\d{1,7})"')
# A cell whose formula has no value: pandas stores none. An empty text is one, as of =IF(A1="", "", A1).
_BARE_FORMULA = re.compile(
    rb'<(?:\w+:)?c\b(?![^>]*\bt="str")[^>]*>\s*<(?:\w+:)?f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)'
    rb"\s*(?:<(?:\w+:)?v\s*(?:/>|>\s*</(?:\w+:)?v>)\s*)?</(?:\w+:)?c>"
)
_HIDDEN = rb'\b(?=[^>]*\bhidden="(?:1|true)")'
_HIDDEN_ROW = re.compile(rb"<(?:\w+:)?row" + _HIDDEN + rb'[^>]*?\sr="(\d{1,7})"')
_HIDDEN_COLUMNS = re.compile(
    rb"<(?:\w+:)?col" + _HIDDEN + rb'(?=[^>]*\smin="(\d{1,5})")[^>]*?\smax="(\d{1,5})"'
)
_MOST_MERGED = 1 << 22  # rows and columns of merged ranges in all
_UNREAD = re.compile(r"xl/(media|charts(?=/chart)|embeddings|comments|drawings)/?[^/]*$")
_THINGS = {"media": PICTURES, "charts": CHARTS, "embeddings": EMBEDDED}
_TEXTS = {"comments": COMMENTS, "drawings": DRAWN_WORDS}
_TEXT = re.compile(rb"<(?:\w+:)?t(?:\s[^>]*)?>([^<]*)<")


def read_workbook(data: bytes, title: str) -> Document:
    """Read an .xlsx: each row is a block that names the columns, at the place "sheet NAME, row N".

    Hidden sheets, rows and columns, comments and drawings are left out and counted; of a formula the stored
    value is read. Merged cells count in each of their rows, and name all of their columns in a header. Sheets
    that cannot be read are named in a note, as is the row after which one breaks off. Raises
    :class:`DataError` for what is no workbook.
    """
    archive = Archive(data, ".xlsx")
    archive.check()
    try:
        book, unread = _open(data)
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the library
        raise DataError(f"it is damaged, or no .xlsx ({reason(error)}): open it and save it again.") from None
    writer, several = Writer(title), len(book.worksheets) + len(unread) > 1
    for sheet in book.worksheets:
        rows, is_bold, problem = _read_sheet(sheet)
        if problem:
            unread[f"sheet {sheet.title} after row {len(rows):,}"] = problem
        if sheet.sheet_state != "visible":
            writer.leave_out(HIDDEN_SHEETS, "\n".join(" ".join(row) for row in rows))
            continue
        if several:
            writer.heading(2, sheet.title)
        xml = _read_part(archive, sheet._worksheet_path)
        spread = _spread_merged(rows, _merged_ranges(xml), writer)
        _leave_out_hidden(rows, xml, writer)
        place = f"sheet {sheet.title}, row {{}}".format
        write_rows(writer, rows, place, header_by_words=is_bold, spread=spread)
    _count_unread(archive, writer)
    writer.notes += describe_unread(unread)
    sheets = [part for part in archive.names if part.startswith("xl/worksheets/")]
    if count := sum(len(_BARE_FORMULA.findall(_read_part(archive, part))) for part in sheets):
        writer.pass_over(BARE_FORMULAS, count)
        writer.notes.append(
            f"{count:,} formula(s) have no stored value and are not read: open it in Excel or LibreOffice, "
            "and save it"
        )
    return writer.document()


def _open(data: bytes) -> tuple[Any, dict[str, str]]:
    """Return a workbook without its chart sheets, and why others cannot be opened: the library gives up."""
    from openpyxl.reader.excel import ExcelReader  # slow to import
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    reader = ExcelReader(io.BytesIO(data), read_only=True, data_only=True)
    unread: dict[str, str] = {}

    def open_sheets() -> None:
        for sheet in reader.parser.sheets:
            try:
                relation = reader.parser.rels[sheet.id]
                if "chartsheet" in relation.Type:
                    continue
                worksheet = ReadOnlyWorksheet(reader.wb, sheet.name, relation.target, reader.shared_strings)
            except Exception as error:  # noqa: BLE001 - as above
                unread[f"sheet {sheet.name}"] = reason(error)
                continue
            worksheet.sheet_state = sheet.state
            reader.wb._sheets.append(worksheet)

    reader.read_worksheets = open_sheets
    reader.read()
    return reader.wb, unread


def _read_sheet(sheet: Any) -> tuple[list[list[str]], bool, str]:
    """Return a sheet's rows, whether the first one of several cells is bold, as headers are, and a problem.

    The problem: why there may be more rows than could be read, "" if all could.
    """
    sheet.reset_dimensions()  # some programs state too few
    rows: list[list[str]] = []
    is_bold: bool | None = None
    try:
        for row in sheet.iter_rows(max_row=_MOST_ROWS):
            # openpyxl: empty cells have no format.
            cells = [_show(cell.value, getattr(cell, "number_format", "")) for cell in row]
            while cells and not cells[-1]:  # formatted, up to the last of 16,384 columns
                cells.pop()
            rows.append(cells)
            if is_bold is None and sum(map(bool, cells)) > 1:
                is_bold = all(cell.font.b for cell in row if cell.value is not None)
    except Exception as error:  # noqa: BLE001 - as above
        return rows, bool(is_bold), reason(error)
    return rows, bool(is_bold), ""


def _read_part(archive: Archive, name: str) -> bytes:
    """Return a part's XML, none if it is damaged: a note says already where the sheet breaks off."""
    with suppress(KeyError, DataError, *DAMAGE):
        return archive.read(name)
    return b""


def _merged_ranges(xml: bytes) -> list[tuple[int, int, int, int]]:
    """Return the left, top, right and bottom of a sheet's merged ranges, which openpyxl does not stream."""
    from openpyxl.utils.cell import range_boundaries

    return [range_boundaries(cells.decode()) for cells in _MERGED.findall(xml)]


def _spread_merged(
    rows: list[list[str]], ranges: Sequence[tuple[int, int, int, int]], writer: Writer
) -> dict[int, Sequence[str]]:
    """Write the text of merged cells into each of their rows.

    Return the rows in which some go over several columns, by their number, with the text in each of these.
    """
    wide: dict[int, list[str]] = {}
    width, left_over = max(map(len, rows), default=0), _MOST_MERGED
    for left, top, right, bottom in ranges:
        text = rows[top - 1][left - 1] if top <= len(rows) and left <= len(rows[top - 1]) else ""
        left_over -= bottom - top + right - left
        if not text or left_over < 0:
            writer.pass_over(MERGED, int(left_over < 0))
            continue
        for row in filter(any, rows[top:bottom]):
            row += [""] * (left - len(row))
            row[left - 1] = row[left - 1] or text
    for left, top, right, _ in ranges:
        row = rows[top - 1] if right > left and top <= len(rows) else []
        if left <= len(row) and row[left - 1]:
            names = wide.setdefault(top, [*row, *[""] * (width - len(row))])
            names[left - 1 : right] = [row[left - 1]] * (min(right, width) - left + 1)
    # One cell over all columns says what the table is about.
    return {number: names for number, names in wide.items() if len({*filter(None, names)}) > 1}


def _leave_out_hidden(rows: list[list[str]], xml: bytes, writer: Writer) -> None:
    """Empty the cells of hidden rows and columns, and count their words."""
    hidden_rows = {int(number) for number in _HIDDEN_ROW.findall(xml)}
    width = max(map(len, rows), default=0)
    hidden_columns = {
        column
        for first, last in _HIDDEN_COLUMNS.findall(xml)
        for column in range(int(first) - 1, min(int(last), width))
    }
    for number, row in enumerate(rows, 1) if hidden_rows or hidden_columns else ():
        for column, cell in enumerate(row):
            if number in hidden_rows or column in hidden_columns:
                writer.leave_out(HIDDEN_PARTS, cell)
                row[column] = ""


def _count_unread(archive: Archive, writer: Writer) -> None:
    """Count pictures, charts, comments and words in drawings, which lie beside the sheets."""
    for part in filter(None, map(_UNREAD.match, archive.names)):
        if kind := _THINGS.get(part[1]):
            writer.pass_over(kind)
        else:
            words = b" ".join(_TEXT.findall(_read_part(archive, part[0])))
            writer.leave_out(_TEXTS[part[1]], words.decode("utf-8", "replace"))


def _show(value: Any, number_format: str) -> str:
    """Return a cell's value as a reader sees it, as far as that matters for words.

    >>> _show(0.25, "0%"), _show(3.0, "General"), _show(datetime.datetime(2026, 1, 31), "General")
    ('25%', '3', '2026-01-31')
    >>> _show(25, '0"%"'), _show(1067, "00000")
    ('25%', '01067')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float) and "%" in number_format:
        # A sign in quotation marks multiplies nothing.
        return f"{value * 100:.10g}%" if "%" in _NO_CODES.sub("", number_format) else f"{value:.15g}%"
    if isinstance(value, int) and number_format.strip("0") == "":  # a postcode, a part's number
        return f"{value:0{len(number_format)}}"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    return str(value)
