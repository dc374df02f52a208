"""How the cells of a text table are written: what is between them, and what quotation marks do.

A table that Python's csv module reads to its end without a complaint, with as many cells in each row, is read
as it reads it. The rest is for tables that were not written so.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import regex

SAMPLE = 1000  # lines that the layout of a table is found out from
_LONGEST_CELL = 1 << 26  # characters of one row at most while a whole file is tried
_NUMBER = re.compile(r"\s*[-+.,\d]+(?:e[-+]?\d+)?\s*", re.IGNORECASE)


class OpenMarkError(Exception):
    """A quotation mark that is closed nowhere near."""


@dataclass(frozen=True)
class Dialect:
    r"""How cells are written.

    Attributes:
        delimiter: between cells.
        quoted: whether quotation marks enclose cells, as in CSV; else they are part of the text.
        blanks: whether blanks stand before a cell's opening mark.
        escaped: whether a backslash stands before marks, delimiters and line breaks of a text, as
            in ``"He said \"no\""``.
    """

    delimiter: str
    quoted: bool = True
    blanks: bool = False
    escaped: bool = False

    def split(self, lines: Iterable[str], *, strict: bool = False) -> Any:  # a csv.reader
        """Return a reader of the rows; a ``strict`` one raises csv.Error for text behind a closing mark."""
        csv.field_size_limit(sys.maxsize)  # the csv module refuses fields beyond 128 kB otherwise
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE,
            skipinitialspace=self.blanks,
            escapechar="\\" if self.escaped else None,
            strict=strict,
        )

    def is_strict(self, lines: Iterable[str], *, is_cut: bool = False) -> bool:
        """Whether nothing but a delimiter follows a closing mark. ``is_cut``: lines may end within a cell."""
        try:
            for _ in self.split(lines, strict=True):
                pass
        except csv.Error as error:
            return is_cut and "unexpected end" in str(error)
        return True

    def evenness(self, lines: Iterable[str], *, is_cut: bool = False) -> tuple[float, int]:
        """Return which share of the rows has the most common number of cells, and how many rows there are.

        ``is_cut``: the last of several rows is not counted.
        """
        rows = [len(row) for row in self.split(lines) if row]
        widths = Counter(rows[:-1] if is_cut and len(rows) > 2 else rows)
        return (max(widths.values()) / widths.total(), widths.total()) if widths else (0.0, 0)

    def breaks(self, line: str) -> bool:
        """Whether a row of one line has a cell with text behind its closing mark, or that is not closed."""
        if '"' not in line:
            return False
        if self.escaped or self.blanks:
            return not self.is_strict([line])
        return _broken_cell(self.delimiter).match(line) is not None

    def closes(self, lines: Sequence[str]) -> bool:
        """Whether all marks of a row of several lines are closed, with at most blanks behind them."""
        if self.is_strict(lines):
            return True
        return not self.escaped and _closed_row(self.delimiter).fullmatch("".join(lines)) is not None

    def reads_whole(self, lines: Iterable[str]) -> bool:
        """Whether a file is read without a complaint, with as many cells in each row; in constant memory.

        Rows of one cell may stand above. A file with as many tabs in each line is one of lines.
        """
        width, size, by_lines = 0, 0, self.delimiter == "\t"

        def feed() -> Iterator[str]:
            nonlocal size, by_lines
            for line in lines:
                size += len(line)
                if size > _LONGEST_CELL:
                    raise OpenMarkError
                by_lines = by_lines and (not width or line.count("\t") == width - 1)
                yield line

        try:
            for row in filter(None, self.split(feed(), strict=True)):
                if width > 1 and len(row) != width:
                    return False
                width, size = len(row), 0
        except (csv.Error, OpenMarkError):
            return False
        return not by_lines


def find_dialect(lines: Sequence[str], delimiter: str) -> Dialect:
    """Find out what marks and backslashes do in the first lines of a table.

    Only where csv's own reading is uneven or has text behind a mark, others are tried.
    """
    plain, is_cut = Dialect(delimiter), len(lines) >= SAMPLE
    text = "".join(lines)
    share = plain.evenness(lines)[0]
    strict = plain.is_strict(lines, is_cut=is_cut)
    if not (strict and share == 1):
        separator = re.escape(delimiter)
        share = max(share, replace(plain, quoted=False).evenness(lines)[0])
        if re.search(rf'\\(?:["\n]|{separator})', text):
            with_escapes = replace(plain, escaped=True)
            better = with_escapes.evenness(lines, is_cut=is_cut)[0]
            if with_escapes.is_strict(lines, is_cut=is_cut) and (
                better > share or (better == share and not strict)
            ):
                return with_escapes
        if delimiter != " " and re.search(rf'{separator} +"', text):
            with_blanks = replace(plain, blanks=True)
            if (
                with_blanks.is_strict(lines, is_cut=is_cut)
                and with_blanks.evenness(lines, is_cut=is_cut)[0] > share
            ):
                return with_blanks
    return replace(plain, quoted=_is_quoted(lines, plain, strict=strict))


def _is_quoted(lines: Sequence[str], plain: Dialect, *, strict: bool) -> bool:
    """Whether quotation marks enclose cells: what cuts more of the first lines into rows alike.

    Where that is a draw, the cells decide: for it speaks one with doubled marks, or with the delimiter,
    against it text behind a closing mark, or a mark in a cell that has none around it. A table is quoted if
    nothing speaks either way.
    """
    if not any('"' in line for line in lines):
        return True
    (share, rows), (other_share, other_rows) = (
        dialect.evenness(lines) for dialect in (plain, replace(plain, quoted=False))
    )
    if share != other_share:
        return share > other_share
    if rows != other_rows:
        return strict
    return sum(_quoting_evidence(line, plain.delimiter) for line in lines) >= 0


def _quoting_evidence(line: str, delimiter: str) -> int:
    """Return 1 if a line's marks enclose cells, -1 if they are part of its text, 0 if either may be."""
    if '"' not in line:
        return 0
    if _broken_cell(delimiter).match(line):
        return -1
    cells = next(csv.reader([line], delimiter=delimiter))
    plain = next(csv.reader([line], delimiter=delimiter, quoting=csv.QUOTE_NONE))
    if len(cells) != len(plain) or any(cell[:1] == '"' and '""' in cell[1:-1] for cell in plain):
        return 1
    bare = [cell for cell in plain if cell.strip() and cell[:1] != '"' and not _NUMBER.fullmatch(cell)]
    if any('"' in cell for cell in bare):
        return -1
    # Cells that need no marks have them: either all have, or they are titles of songs.
    return -1 if delimiter == "\t" and bare else 0


_QUOTED_CELL = r'"[^"]*+(?:""[^"]*+)*+"'


@lru_cache
def _broken_cell(delimiter: str) -> regex.Pattern[str]:
    """Return what a line begins as if one of its cells has text behind its closing mark.

    Such a mark is part of the text; blanks are no text. Possessive, since a line may be long: Python's own
    module matches these wrongly up to 3.11.4 (its issue 106052), as Debian 12 has it.
    """
    separator = re.escape(delimiter)
    return regex.compile(
        rf'(?:(?:{_QUOTED_CELL} *+|(?!")[^{separator}]*+){separator})*+{_QUOTED_CELL}'
        rf'(?! *+(?:[\r\n]|{separator}|$))(?!")'
    )


@lru_cache
def _closed_row(delimiter: str) -> regex.Pattern[str]:
    separator = re.escape(delimiter)
    cell = rf'(?:{_QUOTED_CELL} *+|(?!")[^{separator}\r\n]*+)'
    return regex.compile(rf"(?:{cell}{separator})*+{cell}[\r\n]*+")
