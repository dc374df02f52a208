"""How a text table is written, found out from its first rows, and its rows by that.

Nothing is sure of such a table: what separates its cells, whether it has a header, and whether a quotation
mark encloses a cell or is part of a text.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corag.core.errors import DataError
from corag.core.files import open_text
from retrieval.corpora.records import KNOWN_FIELDS, NO_COLUMNS, TEXT_FIELDS, Columns
from retrieval.corpora.table_dialect import SAMPLE, Dialect, OpenMarkError, find_dialect

_DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_NO_DELIMITER = "\x1f"  # of a table with one column, whose texts may have any of the others
_LONGEST_ROW = 2000  # lines of one quoted cell, in a file that csv does not read as a whole


@dataclass
class Layout:
    """How a text table is written.

    Attributes:
        dialect: how its cells are written.
        names: of the columns, in order.
        header: whether the first row has them.
        guessed: whether the names are a guess.
        encoding: what is to be said of it, "" for UTF-8.
        comments: how many lines above the header begin with "#".
        unquoted_rows: rows of a quoted table that were taken as they stand, since their marks do not close.
    """

    dialect: Dialect
    names: tuple[str, ...]
    header: bool
    guessed: bool = False
    encoding: str = ""
    comments: int = 0
    unquoted_rows: int = 0

    @classmethod
    def of(cls, path: Path, columns: Columns, order: Sequence[str]) -> Layout:
        """Find out how a table is written. Raises :class:`DataError` if it lacks one of the ``columns``."""
        guesses: list[str] = []
        # Strays are counted when the rows are read.
        with open_text(path, lambda _: None, guesses.append) as stream:
            lines = [line for _, line in zip(range(SAMPLE), stream, strict=False)]
        if not any(line.strip() for line in lines):
            return cls(Dialect(","), ("text",), header=False)
        comments = _count_comments(lines, columns)
        lines = lines[comments:]
        delimiter = _find_delimiter(lines, columns, order, tab_first=".tsv" in path.suffixes)
        dialect = find_dialect(lines, delimiter)
        rows = [row for row in dialect.split(lines) if row]
        by_number = bool(columns.names) and all(name.isdecimal() for name in columns.names)
        if by_number:
            names = list(map(str, range(1, len(rows[0]) + 1)))
            header = is_guess = False
        elif any(_is_text_column(cell, columns) for cell in rows[0]):
            # A name that the user gives is written as in the file.
            names = [_header_name(cell, columns) for cell in rows[0]]
            header, is_guess = True, False
            _refuse_repeated_names(path, names, columns)
        else:
            _refuse_unknown_header(path, rows, columns)
            is_guess = len(order) != len(rows[0])
            names = _guess_names(rows) if is_guess else list(order)
            header = False
        if missing := [name for name in columns.names if name not in names]:
            raise DataError(
                f"{path}: there is no column '{missing[0]}': expected one of those in its first row, which "
                f"is {_quoted_cells(rows[0])}."
            )
        return cls(dialect, tuple(names), header, is_guess, "; ".join(guesses), comments)

    @classmethod
    def of_any_columns(cls, lines: Sequence[str], *, tab_first: bool) -> Layout:
        """Find out how a table is written whose columns may have any names.

        ``tab_first``: of two ways to cut it equally well, take tabs.
        """
        sample, has_text = lines[:SAMPLE], any(map(str.strip, lines[:SAMPLE]))
        delimiter = _find_delimiter(sample, NO_COLUMNS, (), tab_first=tab_first) if has_text else ","
        return cls(find_dialect(sample, delimiter), (), header=False)

    @property
    def description(self) -> str:
        """What was found, in a sentence without its end."""
        origin = (
            "by the header" if self.header else "a guess, there is no header" if self.guessed else "as named"
        )
        separator = _DELIMITERS.get(self.dialect.delimiter)
        cells = f"cells between {separator}" if len(self.names) > 1 else "one column"
        marks = "enclose cells" if self.dialect.quoted else "are part of the text"
        guess = f" ({self.dialect_guess})" if self.dialect_guess else ""
        exceptions = (
            f" ({self.unquoted_rows:,} rows whose marks do not close were taken as they stand)"
            if self.unquoted_rows
            else ""
        )
        columns = f"columns {', '.join(self.names)} ({origin})"
        encoding = f"{self.encoding}; " if self.encoding else ""
        comments = f", {self.comments:,} line(s) of '#' above are left out" if self.comments else ""
        return f"{encoding}{cells}, quotation marks {marks}{guess}{exceptions}, {columns}{comments}"

    @property
    def dialect_guess(self) -> str:
        """What was guessed of a table that csv does not read as it stands, "" if nothing was."""
        if self.dialect.escaped:
            return "a guess: a backslash makes the sign after it part of the text"
        return "a guess: blanks before an opening mark are left out" if self.dialect.blanks else ""


def split_rows(
    lines: Iterable[str], layout: Layout, is_whole: Callable[[], bool]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table, also its header and blank ones, each with the number of its last line.

    A mark that is not closed where its row ends would swallow the rows after it up to the next one: the line
    that it is in is a row as it stands, which the layout counts.

    Args:
        lines: of the table.
        layout: how it is written.
        is_whole: whether :meth:`Dialect.reads_whole` holds for the table; asked when a mark is in doubt.
    """
    unread, again = iter(lines), deque[str]()
    waiting: list[str] = []  # the lines that the next row is made of
    is_whole = cache(is_whole)

    def feed() -> Iterator[str]:
        while (line := again.popleft() if again else next(unread, None)) is not None:
            waiting.append(line)
            if len(waiting) > _LONGEST_ROW and not is_whole():
                raise OpenMarkError
            yield line

    number, reader = 0, layout.dialect.split(feed())
    while True:
        try:
            row = next(reader, None)
        except OpenMarkError:
            row = []
        if row is None and not waiting:
            return
        row_lines, waiting[:] = waiting[:], []
        if layout.dialect.quoted and _swallows(row_lines, layout) and not is_whole():
            again.extendleft(reversed(row_lines[1:]))
            row_lines = row_lines[:1]
            row = next(Dialect(layout.dialect.delimiter, quoted=False).split(row_lines))
            reader = layout.dialect.split(feed())
            layout.unquoted_rows += 1
        number += len(row_lines)
        yield number, row or []


def _swallows(lines: Sequence[str], layout: Layout) -> bool:
    """Whether the lines of a row are rows by themselves, or a cell has text behind its closing mark."""
    if len(lines) == 1:  # where the columns may have any names, its cells may be of any number, too
        return bool(layout.names) and layout.dialect.breaks(lines[0])
    if len(lines) > _LONGEST_ROW or not layout.dialect.closes(lines):
        return True
    # A text may have commas in any of its lines, but hardly as many tabs as a row.
    tabs = len(layout.names) - 1 if layout.dialect.delimiter == "\t" else 0
    return tabs > 0 and sum(line.count("\t") == tabs for line in lines) > 1


def _count_comments(lines: Sequence[str], columns: Columns) -> int:
    """Return how many lines of "#" stand above a header with a column of text."""
    count = next((n for n, line in enumerate(lines) if line.strip() and line[0] != "#"), 0)
    names = columns.names or TEXT_FIELDS

    def is_header(line: str) -> bool:
        return any(
            _header_name(cell, columns) in names
            for delimiter in _DELIMITERS
            for cell in next(csv.reader([line], delimiter=delimiter))
        )

    above = any(line.startswith("#") for line in lines[:count])
    return count if above and is_header(lines[count]) and not any(map(is_header, lines[:count])) else 0


def _refuse_repeated_names(path: Path, names: Sequence[str], columns: Columns) -> None:
    for name, count in Counter(names).items():
        if count > 1 and name in (columns.names or {*KNOWN_FIELDS, *TEXT_FIELDS}):
            raise DataError(
                f"{path}: {count} columns are named '{name}': expected one. Rename or remove the others."
            )


def _is_text_column(cell: str, columns: Columns) -> bool:
    """Whether a cell of the first row is the name of the column that has the text, or one that is given."""
    return _header_name(cell, columns) in (columns.names or TEXT_FIELDS)


def _header_name(cell: str, columns: Columns) -> str:
    return cell.strip() if cell.strip() in columns.names else _column_name(cell)


def _refuse_unknown_header(path: Path, rows: Sequence[Sequence[str]], columns: Columns) -> None:
    """Raise :class:`DataError` if the first row has names, but none that is known for a text.

    It has if one is known for something else; or if they are single words, and the texts below are not.
    """
    first, *others = rows
    has_known_name = any(_column_name(cell) in KNOWN_FIELDS for cell in first)
    has_known_name = has_known_name and not any(cell.strip().isdecimal() for cell in first)
    words = all(re.fullmatch(r"[^\W\d][\w .-]{0,40}", cell.strip()) for cell in first)
    below = [" " in max(row, key=len).strip() for row in others if row]
    if (
        columns.names
        or has_known_name
        or (words and len(set(first)) == len(first) and 2 * sum(below) > len(below) > 0)
    ):
        expectation = f"'{columns.text}'" if columns.text else "a column of text among them"
        raise DataError(
            f"{path}: the first row, {_quoted_cells(first)}, seems to have the names of the columns: "
            f"expected {expectation}. Name it, such as columns=text={first[-1].strip()},id={first[0].strip()}"
            ", or by numbers (columns=id=1,text=2) if the first row is a passage"
            f"{'' if columns.names else '; with format=documents each row is one that names its columns'}."
        )


def _quoted_cells(row: Sequence[str]) -> str:
    return ", ".join(map(repr, row))[:200]


def _column_name(cell: str) -> str:
    """Return a header's cell as fields are called: "Passage ID" is "passage_id"."""
    return re.sub(r"[\s-]+", "_", cell.strip().strip('"').casefold())


def _find_delimiter(lines: Sequence[str], columns: Columns, order: Sequence[str], *, tab_first: bool) -> str:
    """Return what separates cells: by the header if it has a known name, else what cuts most rows alike."""
    candidates = ["\t", ",", ";", "|"] if tab_first or order else [",", ";", "\t", "|"]
    names = {*TEXT_FIELDS, *columns.names}
    header = next(line for line in lines if line.strip())
    for delimiter in candidates:
        cells = next(csv.reader([header], delimiter=delimiter))
        if len(cells) > 1 and any(_header_name(cell, columns) in names for cell in cells):
            return delimiter
    if _header_name(header, columns) in names:
        return _NO_DELIMITER

    def alike(delimiter: str) -> tuple[float, int]:
        counts = Counter(len(row) for row in find_dialect(lines, delimiter).split(lines) if row)
        cells, rows = max(counts.items(), key=lambda item: (item[0] > 1, item[1]))
        return (rows / counts.total() if cells > 1 else 0.0), -candidates.index(delimiter)

    best = max(candidates, key=alike)
    return best if alike(best)[0] > 0.5 or (order and best in header) else _NO_DELIMITER


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
