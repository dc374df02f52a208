"""Rows of tables that are documents of their own (CSV, sheets of a workbook): each is cited by its number."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest

from corag.data.records import Note, split_rows
from corag.data.text import decode
from retrieval.documents.document import Document, Writer, clean, join_names, name_cells

_NUMBER = re.compile(r"(?!(?:19|20)\d\d$)[\W\d]*\d[\W\d]*")  # a year may name a column
# What ends no row for a spreadsheet program, but a line for Python.
_WITHIN_ROWS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_TITLE_LEVEL = 3  # below the document's title and the sheet's name


def read_table_file(data: bytes, title: str) -> Document:
    """Read a CSV or TSV file: each row is a block that names the columns, at the place "row N".

    N is the number that a spreadsheet program shows; the first row names the columns unless it has numbers.
    """
    decoding = decode(data)
    writer = Writer(title)
    writer.notes += [decoding.note] if decoding.note else []
    lines = clean(_WITHIN_ROWS.sub(" ", decoding.text)).splitlines(keepends=True)
    rows: list[list[str]] = []
    delimiter = _delimiter(lines)
    found = [*split_rows(iter(lines), delimiter)]
    ends = [number - 1 for number, _ in found[1:]] + [len(lines)]
    for (number, row), end in zip(found, ends, strict=False):
        if isinstance(row, Note):
            writer.notes.append(row.text)
        elif isinstance(row, str):  # one mark that never ends would take all that follows with it
            writer.notes.append(f"line {number} is read with its marks: {row.rstrip('.')}")
            rows += [line.rstrip("\n").split(delimiter) for line in lines[number - 1 : end]]
        else:
            rows.append(row)
    write_rows(writer, rows, "row {}".format, header_by_words=True)
    return writer.document()


def _delimiter(lines: Sequence[str]) -> str:
    """Return what separates cells: of the usual ones that which most rows have outside of marks."""
    sample = [re.sub(r'"[^"]*"', "", line) for line in lines[:100] if line.strip()]
    return max(
        "\t,;|", key=lambda each: (sum(each in line for line in sample), "".join(sample[:1]).count(each))
    )


def write_rows(
    writer: Writer,
    rows: Iterable[Sequence[str]],
    place: Callable[[int], str],
    *,
    header_by_words: bool,
    spread: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """Write a table's rows, each a block of its own place that names the columns.

    Lines of one cell above the names of the columns are headings of the table. Names that several columns
    share may have further ones below them.

    Args:
        writer: takes the blocks.
        rows: all of them, empty ones too, since they count.
        place: the place of a row by its number, which begins at 1.
        header_by_words: two columns of words have a header, too; else their first row is one like the rest.
        spread: by their number, rows with cells over several columns, as they name these in a header.
    """
    numbered_rows = [
        (number, [" ".join(clean(cell).split()) for cell in row])
        for number, row in enumerate(rows, 1)
        if any(map(str.strip, row))
    ]
    if not numbered_rows:
        return
    wide_rows = spread or {}
    heads = [wide_rows.get(number, row) for number, row in numbered_rows]
    width = statistics.median_high(map(_count_filled, heads))
    start = next((n for n, row in enumerate(heads) if 2 * _count_filled(row) > width), len(heads))
    level = _TITLE_LEVEL
    for number, row in numbered_rows[:start]:
        cells = [cell for cell in row if cell]
        if len(cells) == 1:
            writer.heading(level, cells[0], page=place(number))
            level += 1  # "Sales", then "in thousand euros": both stand above all rows
        else:
            writer.block(" | ".join(cells), page=place(number), whole=True)
    end = start
    if _is_header(heads[start:], header_by_words=header_by_words):
        end += 1
        while (
            numbered_rows[end - 1][0] in wide_rows
            and end + 1 < len(heads)
            and _goes_on(*heads[end - 1 : end + 1])
        ):
            end += 1
    names = join_names(heads[start:end])
    for number, row in numbered_rows[end:]:
        writer.block(name_cells(names, row), page=place(number), whole=True)


def _goes_on(names: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a row has further names, below those that columns share, and below no others.

    >>> _goes_on(["Town", "Cost", "Cost"], ["", "2023", "2024"])
    True
    >>> _goes_on(["Name", "Name", "Role"], ["Ada", "Lovelace", "writer"])
    False
    """
    shared = {
        column
        for column, name in enumerate(names)
        if name and name in (*names[max(0, column - 1) : column], *names[column + 1 : column + 2])
    }
    cells = enumerate(zip_longest(names, below, fillvalue=""))
    return bool(shared) and all(column in shared or cell in ("", name) for column, (name, cell) in cells)


def _count_filled(row: Sequence[str]) -> int:
    return sum(map(bool, row))


def _is_header(rows: Sequence[Sequence[str]], *, header_by_words: bool) -> bool:
    """Whether the first of some rows names the columns: words, most of them different; a year may be one."""
    first, *others = rows
    names = [cell for cell in first if cell]
    if not others or len(names) < 2 or 2 * len({*names}) <= len(names) or any(map(_NUMBER.fullmatch, names)):
        return False
    if header_by_words or len(names) > 2:
        return True
    # Of two columns the first may name what the second has, row by row.
    last = max(column for column, cell in enumerate(first) if cell)
    return all(_NUMBER.fullmatch(row[last]) for row in others if len(row) > last and row[last])
