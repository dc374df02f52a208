"""Excel's workbooks: the rows of each sheet, by openpyxl."""

from __future__ import annotations

import datetime
import io
import re
import zlib
from contextlib import suppress
from typing import Any
from zipfile import BadZipFile, ZipFile

from corag.core.errors import DataError, reason
from retrieval.documents.archive import open_archive
from retrieval.documents.document import Document, Writer, describe_unread
from retrieval.documents.rows import write_rows

_HIDDEN_SHEETS = "hidden sheets"
_MOST_ROWS = 1 << 20  # of a sheet, as in Excel: a row of a higher number is made to fill a memory
# Of a number's format: text in it, and signs that stand for themselves.
_NO_CODES = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^]]*\]')


def read_workbook(data: bytes, title: str) -> Document:
    """Read an .xlsx: each row is a block that names the columns, at the place "sheet NAME, row N".

    Hidden sheets are left out and counted; of a formula the stored value is read. Sheets that cannot be read
    are named in a note, as is the row after which one breaks off. Raises :class:`DataError` for what is no
    workbook.
    """
    open_archive(data, ".xlsx")
    try:
        book, unread = _open(data, values=True)
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the library
        raise DataError(f"it is damaged, or no .xlsx ({reason(error)}): open it and save it again.") from None
    writer, several = Writer(title), len(book.worksheets) + len(unread) > 1
    for sheet in book.worksheets:
        rows, is_bold, problem = _read_sheet(sheet)
        if problem:
            unread[f"sheet {sheet.title} after row {len(rows):,}"] = problem
        if sheet.sheet_state != "visible":
            writer.leave_out(_HIDDEN_SHEETS, "\n".join(" ".join(row) for row in rows))
            continue
        if several:
            writer.heading(2, sheet.title)
        write_rows(writer, rows, f"sheet {sheet.title}, row {{}}".format, header_by_words=is_bold)
    writer.notes += describe_unread(unread)
    if count := _count_bare_formulas(data):
        writer.notes.append(
            f"{count:,} formula(s) have no stored value and are not read: open it in Excel or LibreOffice, "
            "and save it"
        )
    return writer.document()


def _open(data: bytes, *, values: bool) -> tuple[Any, dict[str, str]]:
    """Return a workbook without its chart sheets, and why sheets cannot be opened; the library would give up.

    ``values``: those stored of formulas, not the formulas.
    """
    from openpyxl.reader.excel import ExcelReader  # slow to import
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    reader = ExcelReader(io.BytesIO(data), read_only=True, data_only=values)
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


def _show(value: Any, number_format: str) -> str:
    """Return a cell's value as a reader sees it, as far as that matters for words.

    >>> _show(0.25, "0%"), _show(3.0, "General"), _show(datetime.datetime(2026, 1, 31), "General")
    ('25%', '3', '2026-01-31')
    >>> _show(25, '0"%"')
    '25%'
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float) and "%" in number_format:
        # A sign in quotation marks multiplies nothing.
        return f"{value * 100:.10g}%" if "%" in _NO_CODES.sub("", number_format) else f"{value:.15g}%"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    return str(value)


def _count_bare_formulas(data: bytes) -> int:
    """Return how many cells have a formula whose value no program has stored, as pandas writes them."""
    with open_archive(data, ".xlsx") as archive:
        sheets = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
        if not any(_has_formulas(archive, name) for name in sheets):
            return 0
    count = 0
    values, formulas = (_open(data, values=values)[0].worksheets for values in (True, False))
    for with_values, with_formulas in zip(values, formulas, strict=True):
        with suppress(Exception):  # a note tells already where a sheet breaks off
            for row, formula_row in zip(with_values.iter_rows(), with_formulas.iter_rows(), strict=False):
                count += sum(map(_is_bare, row, formula_row))
    return count


def _has_formulas(archive: ZipFile, sheet: str) -> bool:
    try:
        xml = archive.read(sheet)
    except (BadZipFile, zlib.error, EOFError):
        return True  # as far as can be told
    return b"<f>" in xml or b"<f " in xml


def _is_bare(cell: Any, formula: Any) -> bool:
    return (
        cell.value is None
        and cell.data_type != "str"  # stored, and an empty text, as of =IF(A1="", "", A1)
        and isinstance(formula.value, str)
        and formula.value.startswith("=")
    )
