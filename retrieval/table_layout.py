"""How a text table is written, found out from its first rows, and its rows by that.

Nothing is sure of such a table: what separates its cells, whether it has a header, and whether a quotation
mark encloses a cell or is part of a text.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regex

from corag.core.errors import DataError
from corag.core.files import open_text
from retrieval.records import KNOWN_FIELDS, NO_COLUMNS, TEXT_FIELDS, Columns

SAMPLE = 1000  # lines that the layout of a table is found out from
_DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_NO_DELIMITER = "\x1f"  # of a table with one column, whose texts may have any of the others
_LONGEST_ROW = 2000  # lines of one quoted cell at most; more, and its closing mark is missing


@dataclass
class Layout:
    """How a text table is written.

    Attributes:
        delimiter: between cells.
        quoted: whether quotation marks enclose cells, as in CSV; else they are part of the text.
        names: of the columns, in order.
        header: whether the first row has them.
        guessed: whether the names are a guess.
        encoding: what is to be said of it, "" for UTF-8.
        unquoted_rows: rows of a quoted table that were taken as they stand, since their marks do not close.
    """

    delimiter: str
    quoted: bool
    names: tuple[str, ...]
    header: bool
    guessed: bool = False
    encoding: str = ""
    unquoted_rows: int = 0
    broken: regex.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        self.broken = _broken_cell(self.delimiter)

    @classmethod
    def of(cls, path: Path, columns: Columns, order: Sequence[str]) -> Layout:
        """Find out how a table is written. Raises :class:`DataError` if it lacks one of the ``columns``."""
        guesses: list[str] = []
        # Strays are counted when the rows are read.
        with open_text(path, lambda _: None, guesses.append) as stream:
            lines = [line for _, line in zip(range(SAMPLE), stream, strict=False)]
        if not any(line.strip() for line in lines):
            return cls(",", True, ("text",), header=False)
        delimiter = _find_delimiter(lines, columns, order, tab_first=".tsv" in path.suffixes)
        quoted = _is_quoted(lines, delimiter)
        rows = [row for row in _split(lines, delimiter, quoted) if row]
        by_number = bool(columns.given) and all(name.isdecimal() for name in columns.given)
        if by_number:
            names = list(map(str, range(1, len(rows[0]) + 1)))
            header = guessed = False
        elif any(_is_text_column(cell, columns) for cell in rows[0]):
            # A name that the user gives is written as in the file.
            names = [_header_name(cell, columns) for cell in rows[0]]
            header, guessed = True, False
        else:
            _refuse_unknown_header(path, rows, columns)
            guessed = len(order) != len(rows[0])
            names = _guess_names(rows) if guessed else list(order)
            header = False
        if missing := [name for name in columns.given if name not in names]:
            raise DataError(
                f"{path}: there is no column '{missing[0]}': expected one of those in its first row, which "
                f"is {_quoted_cells(rows[0])}."
            )
        return cls(delimiter, quoted, tuple(names), header, guessed, "; ".join(guesses))

    @classmethod
    def of_any_columns(cls, lines: Sequence[str], *, tab_first: bool) -> Layout:
        """Find out how a table is written whose columns may have any names.

        ``tab_first``: of two ways to cut it equally well, take tabs.
        """
        sample = [*filter(str.strip, lines[:SAMPLE])]
        delimiter = _find_delimiter(sample, NO_COLUMNS, (), tab_first=tab_first) if sample else ","
        return cls(delimiter, not sample or _is_quoted(sample, delimiter), (), header=False)

    @property
    def description(self) -> str:
        """What was found, in a sentence without its end."""
        origin = (
            "by the header" if self.header else "a guess, there is no header" if self.guessed else "as named"
        )
        cells = f"cells between {_DELIMITERS[self.delimiter]}" if len(self.names) > 1 else "one column"
        marks = "enclose cells" if self.quoted else "are part of the text"
        exceptions = (
            f" ({self.unquoted_rows:,} rows whose marks do not close were taken as they stand)"
            if self.unquoted_rows
            else ""
        )
        columns = f"columns {', '.join(self.names)} ({origin})"
        encoding = f"{self.encoding}; " if self.encoding else ""
        return f"{encoding}{cells}, quotation marks {marks}{exceptions}, {columns}"


def split_rows(lines: Iterable[str], layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table, also its header and blank ones, each with the number of its last line.

    A mark that is not closed where its row ends would swallow the rows after it up to the next one: the line
    that it is in is a row as it stands, which the layout counts.
    """
    unread, again = iter(lines), deque[str]()
    waiting: list[str] = []  # the lines that the next row is made of

    def feed() -> Iterator[str]:
        while (line := again.popleft() if again else next(unread, None)) is not None:
            waiting.append(line)
            if len(waiting) > _LONGEST_ROW:
                raise _OpenMarkError
            yield line

    number, reader = 0, _split(feed(), layout.delimiter, layout.quoted)
    while True:
        try:
            row = next(reader, None)
        except _OpenMarkError:
            row = []
        if row is None and not waiting:
            return
        taken, waiting[:] = waiting[:], []
        if layout.quoted and _swallows(taken, layout):
            again.extendleft(reversed(taken[1:]))
            taken = taken[:1]
            row = next(_split(taken, layout.delimiter, quoted=False))
            reader = _split(feed(), layout.delimiter, layout.quoted)
            layout.unquoted_rows += 1
        number += len(taken)
        yield number, row or []


class _OpenMarkError(Exception):
    """A quotation mark that is closed nowhere near."""


def _swallows(lines: Sequence[str], layout: Layout) -> bool:
    """Whether the lines of a row are rows by themselves, or a cell has text behind its closing mark."""
    if len(lines) == 1:  # where the columns may have any names, its cells may be of any number, too
        return bool(layout.names) and '"' in lines[0] and layout.broken.match(lines[0]) is not None
    if len(lines) > _LONGEST_ROW or not _is_strict(lines, layout.delimiter):
        return True
    # A text may have commas in any of its lines, but hardly as many tabs as a row.
    tabs = len(layout.names) - 1
    return layout.delimiter == "\t" and tabs > 0 and sum(line.count("\t") == tabs for line in lines) > 1


def _is_text_column(cell: str, columns: Columns) -> bool:
    """Whether a cell of the first row is the name of the column that has the text, or one that is given."""
    return _header_name(cell, columns) in (columns.given or TEXT_FIELDS)


def _header_name(cell: str, columns: Columns) -> str:
    return cell.strip() if cell.strip() in columns.given else _column_name(cell)


def _refuse_unknown_header(path: Path, rows: Sequence[Sequence[str]], columns: Columns) -> None:
    """Raise :class:`DataError` if the first row has names, but none that is known for a text.

    It has if one is known for something else; or if they are single words, and the texts below are not.
    """
    first, *others = rows
    known = any(_column_name(cell) in KNOWN_FIELDS for cell in first)
    known = known and not any(cell.strip().isdecimal() for cell in first)
    words = all(re.fullmatch(r"[^\W\d][\w .-]{0,40}", cell.strip()) for cell in first)
    below = [" " in max(row, key=len).strip() for row in others if row]
    if (
        columns.given
        or known
        or (words and len(set(first)) == len(first) and 2 * sum(below) > len(below) > 0)
    ):
        expected = f"'{columns.text}'" if columns.text else "a column of text among them"
        raise DataError(
            f"{path}: the first row, {_quoted_cells(first)}, seems to have the names of the columns: "
            f"expected {expected}. Name it, such as columns text={first[-1].strip()},id={first[0].strip()}, "
            "or by numbers (columns id=1,text=2) if the first row is a passage"
            f"{'' if columns.given else '; with --format documents each row is one that names its columns'}."
        )


def _quoted_cells(row: Sequence[str]) -> str:
    return ", ".join(map(repr, row))[:200]


def _column_name(cell: str) -> str:
    """Return a header's cell as fields are called: "Passage ID" is "passage_id"."""
    return re.sub(r"[\s-]+", "_", cell.strip().strip('"').casefold())


def _find_delimiter(lines: Sequence[str], columns: Columns, order: Sequence[str], *, tab_first: bool) -> str:
    """Return what separates cells: by the header if it has a known name, else what cuts most rows alike."""
    candidates = ["\t", ",", ";", "|"] if tab_first or order else [",", ";", "\t", "|"]
    names = {*TEXT_FIELDS, *columns.given}
    header = next(line for line in lines if line.strip())
    for delimiter in candidates:
        cells = next(csv.reader([header], delimiter=delimiter))
        if len(cells) > 1 and any(_header_name(cell, columns) in names for cell in cells):
            return delimiter
    if _header_name(header, columns) in names:
        return _NO_DELIMITER

    def alike(delimiter: str) -> tuple[float, int]:
        counts = Counter(len(row) for row in _split(lines, delimiter, _is_quoted(lines, delimiter)) if row)
        cells, rows = max(counts.items(), key=lambda item: (item[0] > 1, item[1]))
        return (rows / counts.total() if cells > 1 else 0.0), -candidates.index(delimiter)

    best = max(candidates, key=alike)
    return best if alike(best)[0] > 0.5 or (order and best in header) else _NO_DELIMITER


def _broken_cell(delimiter: str) -> regex.Pattern[str]:
    """Return what a line begins as if one of its cells has text behind its closing mark.

    Such a mark is part of the text. Possessive, since a line may be long: Python's own module matches these
    wrongly up to 3.11.4 (its issue 106052), as Debian 12 has it.
    """
    sign = re.escape(delimiter)
    quoted = r'"[^"]*+(?:""[^"]*+)*+"'
    return regex.compile(rf'(?:(?:{quoted}|(?!")[^{sign}]*+){sign})*+{quoted}(?!["\r\n]|{sign}|$)')


def _is_quoted(lines: Sequence[str], delimiter: str) -> bool:
    """Whether quotation marks enclose cells: what cuts more of the first lines into rows alike.

    Where that is a draw, the cells decide: for it speaks one with doubled marks, or with the delimiter,
    against it text behind a closing mark, or a mark in a cell that has none around it. A table is quoted if
    nothing speaks either way.
    """
    if not any('"' in line for line in lines):
        return True
    shares, counts = [], []
    for quoted in (True, False):
        widths = Counter(len(row) for row in _split(lines, delimiter, quoted) if row)
        shares.append(max(widths.values()) / widths.total())
        counts.append(widths.total())
    if shares[0] != shares[1]:
        return shares[0] > shares[1]
    if counts[0] != counts[1]:
        return _is_strict(lines, delimiter, cut=len(lines) == SAMPLE)
    return sum(_quoting_evidence(line, delimiter) for line in lines) >= 0


def _is_strict(lines: Sequence[str], delimiter: str, *, cut: bool = False) -> bool:
    """Whether nothing but a delimiter follows a closing mark. ``cut``: the lines may end within a cell."""
    try:
        for _ in csv.reader(lines, delimiter=delimiter, strict=True):
            pass
    except csv.Error as error:
        return cut and "unexpected end" in str(error)
    return True


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
    bare = [cell for cell in plain if cell[:1] != '"' and not cell.strip().isdecimal()]
    if any('"' in cell for cell in bare):
        return -1
    # Cells that need no marks have them: either all have, or they are titles of songs.
    return -1 if delimiter == "\t" and bare else 0


def _split(lines: Iterable[str], delimiter: str, quoted: bool) -> Any:  # a csv.reader, with its line_num
    csv.field_size_limit(sys.maxsize)  # the csv module refuses fields beyond 128 kB otherwise
    if quoted:
        return csv.reader(lines, delimiter=delimiter)
    return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)


def _guess_names(rows: Sequence[Sequence[str]]) -> list[str]:
    """Name the columns of a table without a header.

    An id comes first if its cells are short and different; the text is the longest column, and of three the
    last one is the title. Others go by their numbers.
    """
    width = Counter(map(len, rows)).most_common(1)[0][0]
    if width == 1:
        return ["text"]
    alike = [row for row in rows if len(row) == width]
    lengths = [sum(len(row[column]) for row in alike) for column in range(width)]
    text = max(range(width), key=lengths.__getitem__)
    names = [str(number) for number in range(1, width + 1)]
    names[text] = "text"
    firsts = {row[0] for row in alike}
    if text and len(firsts) == len(alike) and not any(" " in first.strip() for first in firsts):
        names[0] = "id"
    others = [column for column in range(width) if names[column] not in ("text", "id")]
    # A URL or a number is no title.
    titles = [
        column
        for column in others
        if not all(re.fullmatch(r"\s*(https?://\S*|[\d.,-]*)\s*", row[column]) for row in alike)
    ]
    if len(titles) == 1:
        names[titles[0]] = "title"
    return names
