"""Files of records: JSON lines, a JSON list or mapping, and tables, as a stream of located records.

A record that cannot be read is passed on as an :class:`OddRecordError`, so that the others go on; a
:class:`Note` says what was guessed of a file.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from corag.core.errors import DataError
from corag.core.files import open_text, parse_json, read_text
from corag.core.types import Passage, passage_id
from retrieval.corpora.records import (
    KNOWN_FIELDS,
    NO_COLUMNS,
    TEXT_FIELDS,
    Columns,
    OddRecordError,
    has_id,
    passage_from_record,
)
from retrieval.corpora.tables import InputTable, is_table, read_table
from retrieval.documents.files import content_ending

_MADE_ID = len(passage_id("", ""))
_HEAD = 1 << 20  # characters in which the first object of a file must end
# Names under which an object holds its records, where it holds several lists.
_LISTS = ("data", "rows", "corpus", "documents", "docs", "passages", "chunks", "nodes", "records", "items")
_NO_SPACE = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence on what was guessed while a file was read."""

    text: str


class Record(NamedTuple):
    """A record and where it stands, such as "c.jsonl, line 3"."""

    where: str
    fields: Mapping[str, Any]


CorpusItem = Passage | OddRecordError | Note
"""What a reader of corpora yields: a passage, a record that is none, or a sentence on what was guessed."""

FileItem = Record | OddRecordError | Note


def _pass_over(_: int) -> None:
    """Count no stray bytes: where a file is read more than once."""


def read_passage_records(
    paths: Sequence[str | Path], columns: Columns = NO_COLUMNS, *, table: bool = False
) -> Iterator[CorpusItem]:
    """Read files whose records are passages as they stand (see :func:`passage_from_record`).

    A file is JSON, JSON lines or a table by its ending; ``table``: one without a telling ending is a table.
    """
    return (item for _, item in read_records_and_passages(paths, columns, table=table))


def read_records_and_passages(
    paths: Sequence[str | Path],
    columns: Columns = NO_COLUMNS,
    *,
    table: bool = False,
    order: Sequence[str] = (),
) -> Iterator[tuple[Mapping[str, Any], CorpusItem]]:
    """Read as :func:`read_passage_records`, with the record of each passage; {} beside what is none.

    ``order``: of the columns of a table without a header.
    """
    for path in paths:
        without_id = 0
        for item in read_record_file(path, columns=columns, order=order, table=table):
            if not isinstance(item, Record):
                yield {}, item
                continue
            where, record = item
            try:
                passage = passage_from_record(record, where, columns)
            except OddRecordError as odd:
                paragraphs = [
                    (record, _passage_or_odd(each, columns)) for each in _squad_article(where, record)
                ]
                without_id += sum(isinstance(each, Passage) for _, each in paragraphs)
                yield from paragraphs or [(record, odd)]
                continue
            # Made ids have 16 signs, others seldom: looked for once more only where they have.
            without_id += len(passage.id) == _MADE_ID and not has_id(record, columns)
            yield record, passage
        if without_id:
            yield {}, Note(f"{path}: {without_id:,} records have no id: theirs is made of title and text")


def _passage_or_odd(item: Record | OddRecordError, columns: Columns) -> CorpusItem:
    try:
        return passage_from_record(item.fields, item.where, columns) if isinstance(item, Record) else item
    except OddRecordError as odd:
        return odd


def read_record_file(
    path: str | Path, *, columns: Columns = NO_COLUMNS, order: Sequence[str] = (), table: bool = False
) -> Iterator[FileItem]:
    """Stream the records of a file: JSON or a table by its ending, else JSON lines.

    Args:
        path: the file, which may be compressed.
        columns: what names the fields have.
        order: of the columns of a table without a header.
        table: whether a file with neither ending is a table.

    Raises:
        DataError: for a file that is not there, or of which nothing can be read.
    """
    path = Path(path)
    ending = content_ending(path)
    strays: list[int] = []
    if is_table(ending) or (table and ending not in (".json", ".jsonl")):
        yield from _table_records(path, read_table(path, columns, order, strays.append))
    elif ending == ".json":
        yield from _json_records(path, strays)
    else:
        yield from _line_records(path, strays)
    if strays:
        count = sum(strays)
        yield Note(f"{path}: {count:,} byte{'s were' if count > 1 else ' was'} not UTF-8: read as U+FFFD")


def _table_records(path: Path, table: InputTable) -> Iterator[FileItem]:
    for row in table.rows():
        yield row if isinstance(row, OddRecordError) else Record(*row)
    if table.description:
        yield Note(f"{path}: {table.description}")


def _line_records(path: Path, strays: list[int]) -> Iterator[FileItem]:
    """Read JSON lines; a file that begins as a list, or whose first object spans lines, is read whole."""
    first, name = True, str(path)
    with open_text(path, strays.append) as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            where = f"{name}, line {number}"
            try:
                value = parse_json(line)
            except json.JSONDecodeError as error:
                if first and line.lstrip()[0] in "[{" and (values := _parse_stream(path, strays)) is not None:
                    yield from _records_by_shape(path, values)
                    return
                reason = f"not valid JSON ({error.msg.removesuffix(' at')} at column {error.colno})"
                yield OddRecordError(where, "not valid JSON", f"{reason}.")
            else:
                if first and isinstance(value, list):
                    yield from _records_by_shape(path, value)
                    return
                yield Record(where, value) if type(value) is dict else _record(value, where)
            first = False


def _record(value: Any, where: str) -> Record | OddRecordError:
    """Return a value as a record: an object, or a text alone."""
    if isinstance(value, dict):
        return Record(where, value)
    if isinstance(value, str):  # a list of texts
        return Record(where, {"text": value})
    return OddRecordError(
        where, "not an object", f"expected a JSON object, found {type(value).__name__}: {value!r:.60}."
    )


def _parse_stream(path: Path, strays: list[int]) -> Any:
    """Return the values of a file of JSON that is broken over lines: its list, or its objects in a row.

    None if it is neither: then its lines are looked at one by one.
    """
    decoder = json.JSONDecoder()
    try:
        with open_text(path, _pass_over) as stream:
            head = stream.read(_HEAD).lstrip()
        if head.startswith("{"):  # a torn line of a large file must not have it read whole
            decoder.raw_decode(head)
        strays.clear()  # it is read once more
        text, values, position = read_text(path, strays.append), [], 0
        while start := _next_value(text, position):
            _, position = decoder.raw_decode(text, start - 1)
            values.append(parse_json(text[start - 1 : position]))
    except (ValueError, RecursionError):  # JSON's own errors, and numbers of thousands of digits
        return None
    return values[0] if len(values) == 1 else values


def _next_value(text: str, position: int) -> int:
    """Return the place, counted from 1, of the next character that is no space; 0 at the end."""
    match = _NO_SPACE.search(text, position)
    return match.start() + 1 if match else 0


def _json_records(path: Path, strays: list[int]) -> Iterator[FileItem]:
    """Read a .json file: a list, a mapping, columns, or lines in spite of its name."""
    if _has_lines(path):  # such as KILT's knowledge source, which no memory holds
        yield from _line_records(path, strays)
        return
    text = read_text(path, strays.append)
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # one object per line, whatever the name says
            strays.clear()  # it is read once more
            yield from _line_records(path, strays)
            return
        comma = text[: error.pos].rstrip().endswith(",") and text[error.pos :].lstrip()[:1] in ("]", "}")
        why = (
            f"a comma before the closing '{text[error.pos :].lstrip()[0]}', which JSON does not allow: "
            "delete it"
            if comma
            else f"{error.msg.removesuffix(' at')} at column {error.colno}"
        )
        raise DataError(f"{path}, line {error.lineno}: not valid JSON ({why}).") from None
    del text
    yield from _records_by_shape(path, value)


def _has_lines(path: Path) -> bool:
    """Whether the first line of a file is a whole object and not the last."""
    with open_text(path, _pass_over) as stream:
        first, newline, rest = stream.read(_HEAD).lstrip().partition("\n")
    if not newline or not rest.strip() or not first.startswith("{"):
        return False
    try:
        return isinstance(parse_json(first), dict)
    except json.JSONDecodeError:
        return False


def _records_by_shape(path: Path, value: Any) -> Iterator[FileItem]:
    """Stream the records of a whole file by its shape."""
    if isinstance(value, list):
        yield from _list_records(path, value)
    elif isinstance(value, dict):
        yield from _mapping_records(path, value)
    else:
        raise DataError(
            f"{path}: expected a list or an object of JSON, or one object per line, but found "
            f"{type(value).__name__}."
        )


def _list_records(path: Path, values: Sequence[Any]) -> Iterator[FileItem]:
    for number, value in enumerate(values, 1):
        yield _record(value, f"{path}, record {number}")


def _squad_article(where: str, article: Mapping[str, Any]) -> Iterator[Record | OddRecordError]:
    """Read the paragraphs of an article in SQuAD's layout, whose texts are called ``context``.

    Nothing for a record that is none.
    """
    paragraphs = article.get("paragraphs")
    if not isinstance(paragraphs, list) or not any("context" in each for each in paragraphs if each):
        return
    for number, paragraph in enumerate(paragraphs, 1):
        location = f"{where}, paragraph {number}"
        if isinstance(paragraph, dict) and "context" in paragraph:
            yield Record(location, {"title": article.get("title"), "text": paragraph["context"]})
        else:
            yield _record(paragraph, location)


def _mapping_records(path: Path, mapping: Mapping[str, Any]) -> Iterator[FileItem]:
    """Read an object by its shape: one record, a list under a name, columns, records or texts by name."""
    lists = {name: value for name, value in mapping.items() if isinstance(value, list)}
    if TEXT_FIELDS & mapping.keys() and lists.keys() == mapping.keys() and not _is_record(mapping):
        if len(set(map(len, lists.values()))) > 1:
            raise DataError(f"{path}: the columns differ in length: expected the same rows in each.")
        rows = (dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True))
        yield from _list_records(path, list(rows))
    elif _is_record(mapping):
        yield Record(f"{path}, the only record", mapping)
    elif isinstance(mapping.get("docstore/data"), dict):  # as LlamaIndex stores its nodes
        yield from _named_records(path, mapping["docstore/data"])
    elif objects := {name: value for name, value in lists.items() if value and isinstance(value[0], dict)}:
        name = next(filter(objects.get, _LISTS), "")
        if not name and len(objects) > 1:
            raise DataError(
                f"{path}: expected one list of records, but there are lists under "
                f"{', '.join(map(repr, objects))}: write the one that is the corpus into a file of its own."
            )
        name = name or next(iter(objects))
        yield from _list_records(path, objects[name])
        if others := sorted(mapping.keys() - {name}):
            yield Note(f"{path}: the records under '{name}' are the corpus, not {', '.join(others)[:80]}")
    elif _all_objects(mapping) and KNOWN_FIELDS & mapping.keys():  # columns, as pandas writes them
        yield from _column_records(path, mapping)
    elif _all_objects(mapping):
        yield from _named_records(path, mapping)
    else:
        yield from _named_texts(path, mapping)


def _is_record(mapping: Mapping[str, Any]) -> bool:
    """Whether an object is a record by itself: with a text, and an id or title or nothing that is unknown."""
    if not TEXT_FIELDS & mapping.keys():
        return False
    if any(isinstance(mapping.get(name), str | int) for name in KNOWN_FIELDS - TEXT_FIELDS):
        return True
    return mapping.keys() <= KNOWN_FIELDS and any(isinstance(mapping.get(name), str) for name in TEXT_FIELDS)


def _all_objects(mapping: Mapping[str, Any]) -> bool:
    return bool(mapping) and all(isinstance(value, dict) for value in mapping.values())


def _column_records(path: Path, columns: Mapping[str, Any]) -> Iterator[FileItem]:
    rows = next(iter(columns.values()))
    if any(column.keys() != rows.keys() for column in columns.values()):
        raise DataError(f"{path}: the columns have different rows: expected the same rows in each column.")
    yield from _list_records(path, [{name: column[row] for name, column in columns.items()} for row in rows])


def _named_records(path: Path, mapping: Mapping[str, Any]) -> Iterator[FileItem]:
    """Read records by their ids."""
    for name, record in mapping.items():
        where = f"{path}, '{name:.60}'"
        if not isinstance(record, dict):
            yield _record(record, where)
            continue
        if isinstance(inner := record.get("__data__"), str):  # as older versions of LlamaIndex write it
            with contextlib.suppress(json.JSONDecodeError):
                record = {**record, "__data__": parse_json(inner)}
        yield Record(where, {"id": name, **record})
    yield Note(f"{path}: an object of records, whose names were taken as ids")


def _named_texts(path: Path, mapping: Mapping[str, Any]) -> Iterator[FileItem]:
    """Read texts by their titles, as HippoRAG has them, or by their numbers."""
    has_numbers = bool(mapping) and all(name.isdecimal() for name in mapping)
    for name, value in mapping.items():
        if isinstance(value, str | int | float | list) or value is None:
            yield Record(f"{path}, '{name:.60}'", {"id" if has_numbers else "title": name, "text": value})
        else:
            yield _record(value, f"{path}, '{name:.60}'")
    yield Note(f"{path}: an object of texts, whose names were taken as {'ids' if has_numbers else 'titles'}")
