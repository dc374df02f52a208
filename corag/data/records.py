"""Files of records: JSON lines, a JSON list, CSV and TSV with a header, Parquet and Arrow.

A record that cannot be read is passed on as an :class:`OddRecordError`, so that the others go on; a
:class:`Note` says what was guessed of a file.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson

from corag.core.errors import ConfigError, DataError
from corag.core.system.files import parse_json
from corag.core.system.installation import require
from corag.data.packed import DAMAGE, check_records_file, content_ending, damage, open_bytes
from corag.data.text import read_lines

TEXT_TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
"""Endings of tables, with what stands between their cells unless ``delimiter`` says otherwise."""

ARROW_TABLES = (".parquet", ".arrow", ".feather")
_BATCH = 1000  # rows of an Arrow file that are read at once
_SAMPLE = 1000  # lines by which it is seen whether the writer of a TSV file quoted


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence, without its end, on what was guessed while a file was read."""

    text: str


class Record(NamedTuple):
    """A record and where it stands, such as "c.jsonl, line 3"."""

    where: str
    fields: Mapping[str, Any]


class OddRecordError(DataError):
    """A record that cannot be used.

    Args:
        where: its place, such as "c.jsonl, line 3".
        reason: why, in the words under which such records are counted.
        detail: what was expected and what was found; or an error that says so, with the place.
    """

    def __init__(self, where: str, reason: str, detail: str | DataError) -> None:
        super().__init__(f"{where}: {detail}" if isinstance(detail, str) else str(detail))
        self.where, self.reason = where, reason


FileItem = Record | OddRecordError | Note


class FileReader(Protocol):
    """Streams the records of a file, as :func:`read_records` does."""

    def __call__(self, path: str | Path, *, encoding: str = "", delimiter: str = "") -> Iterator[FileItem]:
        """Stream them."""


def is_table(ending: str) -> bool:
    """Whether files of this ending are tables."""
    return ending in TEXT_TABLES or ending in ARROW_TABLES


def read_records(
    path: str | Path,
    *,
    encoding: str = "",
    delimiter: str = "",
    names: Sequence[str] = (),
) -> Iterator[FileItem]:
    """Stream the records of a file: Parquet, Arrow or a table with a header by its ending, else JSON.

    JSON is an object per line, or one list of objects, whatever the file is called.

    Args:
        path: the file, which may be compressed with gzip or zstd.
        encoding: of its text; "" for UTF-8 or, where it is none, the likeliest.
        delimiter: between the cells of a table; "" for that of its ending. If given, the file is a table.
        names: of the columns of a table that may have no header: a first row without two of them is one of
            the others. If given, the file is a table, between tabs unless it ends otherwise.

    Raises:
        DataError: for a file that is not there, that breaks off, or of which nothing can be read.
        ConfigError: for an encoding that does not exist, or a delimiter of several characters.
    """
    path = Path(path)
    ending = content_ending(path)
    if ending in ARROW_TABLES:
        yield from _arrow_records(path)
        return
    if len(delimiter) > 1:
        raise ConfigError(f"delimiter is '{delimiter}': expected one character, such as ; or a tab.")
    notes: list[str] = []
    count = 0
    with open_bytes(path) as stream:
        lines = read_lines(stream, path, encoding, notes.append)
        if delimiter or names or ending in TEXT_TABLES:
            items = _table_records(path, lines, delimiter or TEXT_TABLES.get(ending, "\t"), names)
        else:
            items = _json_records(path, lines)
        try:
            for item in items:
                yield item
                count += isinstance(item, Record)
        except DAMAGE as error:
            raise damage(path, error, count) from None
    yield from (Note(f"{path}: {note}") for note in notes)


# JSON


def _json_records(path: Path, lines: Iterator[str]) -> Iterator[FileItem]:
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, first = next(numbered, (0, ""))
    second = next(lines, "")
    torn = first.lstrip().startswith("{") and _json_error(first) >= len(first.rstrip())
    if torn and second.strip() and _json_error(second) >= 0:
        raise DataError(
            f"{path}: expected a JSON list, or one object per line, but found an object that spans lines: "
            "write its records as lines, such as with jq -c '.data[]', or jq -c '.' if it is one."
        )
    if first.lstrip().startswith("["):
        yield from _list_records(path, first + second + "".join(lines), number)
    else:
        yield from _line_records(path, chain([first, second], lines), number)


def _json_error(line: str) -> int:
    """Where a line stops being JSON: at its end for the first of an object over lines; -1 for a value."""
    try:
        _parse(line)
    except json.JSONDecodeError as error:
        return error.pos
    return -1


def _line_records(path: Path, lines: Iterable[str], first: int) -> Iterator[FileItem]:
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            yield _record(_parse(line), where)
        except json.JSONDecodeError as error:
            detail = f"not valid JSON ({error.msg.removesuffix(' at')} at column {error.colno})."
            yield OddRecordError(where, "not valid JSON", detail)


def _parse(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # stricter than Python: NaN, and numbers of many digits
        return parse_json(text)


def _list_records(path: Path, text: str, first: int) -> Iterator[FileItem]:
    try:
        values = _parse(text)
    except json.JSONDecodeError as error:
        where = f"line {first - 1 + error.lineno}, column {error.colno}"
        raise DataError(f"{path}, {where}: not valid JSON ({error.msg.removesuffix(' at')}).") from None
    for number, value in enumerate(values, 1):
        yield _record(value, f"{path}, record {number}")


def _record(value: Any, where: str) -> Record | OddRecordError:
    if isinstance(value, dict):
        return Record(where, value)
    detail = f"expected a JSON object, found {type(value).__name__}: {value!r:.60}."
    return OddRecordError(where, "not an object", detail)


# Tables


def _table_records(
    path: Path, lines: Iterator[str], delimiter: str, names: Sequence[str]
) -> Iterator[FileItem]:
    """Yield a record for each row, with its cells by the names of the columns."""
    header: Sequence[str] = ()
    for number, row in split_rows(lines, delimiter):
        where = f"{path}, line {number}"
        if isinstance(row, Note):
            yield Note(f"{path}: {row.text}")
        elif isinstance(row, str):
            yield OddRecordError(where, "that is no row", row)
        elif not any(map(str.strip, row)):
            continue
        elif not header:
            is_header = not names or len({cell.strip().lower() for cell in row}.intersection(names)) > 1
            header = [cell.strip() for cell in row] if is_header else names
            _check_header(path, header, delimiter)
            if not is_header:
                yield _row(row, header, where)
        else:
            yield _row(row, header, where)


def _check_header(path: Path, header: Sequence[str], delimiter: str) -> None:
    if repeated := [name for name, count in Counter(header).items() if count > 1 and name]:
        raise DataError(f"{path}: several columns are named '{repeated[0]}': rename or remove all but one.")
    others = [each for each in ";|\t," if each in header[0] and each != delimiter]
    if len(header) == 1 and others:
        raise DataError(
            f"{path}: its header is one column, {header[0]!r:.80}: name what stands between the columns with "
            f"delimiter, such as {others[0]!r}."
        )


def _row(row: Sequence[str], header: Sequence[str], where: str) -> Record | OddRecordError:
    if len(row) == len(header):
        return Record(where, dict(zip(header, row, strict=True)))
    detail = f"expected {len(header)} columns ({', '.join(header)}), found {len(row)}."
    return OddRecordError(where, "with another number of cells", detail)


Rows = Iterator[tuple[int, list[str] | str | Note]]
"""The number of the line on which a row begins, and its cells; or what is wrong with it, or a note."""


def split_rows(lines: Iterator[str], delimiter: str) -> Rows:
    """Yield the rows of a table, blank ones too: CSV as RFC 4180 has it, which a TSV file may not be."""
    csv.field_size_limit(sys.maxsize)  # a cell may hold all paragraphs of a question; csv allows 128 KB
    sample = list(islice(lines, _SAMPLE)) if delimiter == "\t" else []
    lines = chain(sample, lines)
    if delimiter != "\t" or _is_quoted(sample, delimiter):
        yield from _split_cells(lines, delimiter)
        return
    marked = False
    for number, line in enumerate(lines, 1):
        if not marked and '"' in line:
            marked = True
            yield number, Note("quotation marks are part of its text, since they do not enclose cells")
        yield number, line.rstrip("\r\n").split(delimiter)


def _is_quoted(sample: Sequence[str], delimiter: str) -> bool:
    """Whether quotation marks enclose cells: some are seen to, none is followed by text, all are closed."""
    reader, closed = csv.reader(sample, delimiter=delimiter, strict=True), 0
    try:
        for _ in reader:
            closed = reader.line_num
    except csv.Error as error:  # the sample may end within a cell
        if len(sample) < _SAMPLE or "unexpected end" not in str(error):
            return False
    return any(line.startswith('"') or f'{delimiter}"' in line for line in sample[:closed])


def _split_cells(lines: Iterator[str], delimiter: str) -> Rows:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            rows = reader.line_num - number + 1
            over = f", and takes {rows:,} lines with it" if rows > 1 else ""
            why = str(error).partition(" - ")[0]
            yield (
                number,
                f"it is no row of a table ({why}){over}: within a cell, a quotation mark is written twice.",
            )


def _arrow_records(path: Path) -> Iterator[FileItem]:
    """Stream the rows of a Parquet or Arrow file, without columns of vectors and bytes."""
    check_records_file(path)
    require(f"'{path}'", "pyarrow", otherwise="write the file as JSONL")
    import pyarrow as arrow
    from pyarrow import ipc, parquet

    number = 0
    try:
        if content_ending(path) == ".parquet":
            file = parquet.ParquetFile(path)
            columns = _readable_columns(file.schema_arrow)
            batches: Iterable[Any] = file.iter_batches(batch_size=_BATCH, columns=columns)
        else:
            batches = _arrow_batches(path, ipc, arrow)
        for batch in batches:
            for row in batch.select(_readable_columns(batch.schema)).to_pylist():
                number += 1
                yield Record(f"{path}, row {number}", row)
    except (arrow.ArrowException, OSError, ValueError) as error:  # two of damaged pages and of bad UTF-8
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: it is damaged, or no {path.suffix.lower()[1:]} file ({reason:.100}): copy it again."
        ) from None


def _arrow_batches(path: Path, ipc: Any, arrow: Any) -> Iterator[Any]:
    with arrow.memory_map(str(path)) as stream:
        try:
            file = ipc.open_file(stream)
        except arrow.ArrowInvalid:  # as Hugging Face's datasets write it
            stream.seek(0)
            yield from ipc.open_stream(stream)
            return
        yield from (file.get_batch(number) for number in range(file.num_record_batches))


def _readable_columns(schema: Any) -> list[str]:
    """Return the columns but those of vectors, which are no text."""
    return [
        each.name for each in schema if not re.search(r"(?:list|array).*(?:float|double)", str(each.type))
    ]
