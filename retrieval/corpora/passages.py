"""From records of a corpus to passages, which have an id, a title and a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corag.core.types import Passage, passage_id
from corag.data.fields import NAMES, ColumnCheck, Columns, as_text, find_field, is_nothing, rename
from corag.data.records import FileItem, Note, OddRecordError, Record, read_records

CorpusItem = Passage | OddRecordError | Note
"""What a reader of corpora yields: a passage, a record that is none, or a sentence on what was guessed."""

PASSAGE_FIELDS = ("id", "title", "text", "source", "page")
_NO_COLUMNS: Columns = {}
_LONGEST_ID = 32_700  # bytes: Lucene's terms have 32,766 at most, and "#2" may be added


@dataclass(frozen=True)
class Reading:
    """How the files of a corpus are read, as far as a user says it.

    Attributes:
        columns: what the fields are called, by ours.
        encoding: of text; "" to find it out.
        delimiter: between the cells of a table; "" for that of its ending.
        names: of the columns of a table that may have no header.
    """

    columns: Columns = field(default_factory=dict)
    encoding: str = ""
    delimiter: str = ""
    names: Sequence[str] = ()


def read_file(path: str | Path, reading: Reading) -> Iterator[FileItem]:
    """Stream the records of a file."""
    return read_records(path, encoding=reading.encoding, delimiter=reading.delimiter, names=reading.names)


def read_passages(paths: Sequence[str | Path], reading: Reading) -> Iterator[CorpusItem]:
    """Read files whose records are passages as they stand (see :func:`passage_from_record`)."""
    return (item for _, item in read_records_and_passages(paths, reading))


def read_records_and_passages(
    paths: Sequence[str | Path], reading: Reading
) -> Iterator[tuple[Mapping[str, Any], CorpusItem]]:
    """Read as :func:`read_passages`, with the record of each passage; {} beside what is none."""
    check = ColumnCheck(reading.columns)
    for path in paths:
        without_id = 0
        for item in read_file(path, reading):
            if not isinstance(item, Record):
                yield {}, item
                continue
            check.add(item.fields)
            record = rename(item.fields, reading.columns)
            try:
                passage = passage_from_record(record, item.where, reading.columns)
            except OddRecordError as odd:
                yield record, odd
                continue
            without_id += not _identifier(record, item.where)
            yield record, passage
        if without_id:
            yield {}, Note(f"{path}: {without_id:,} records have no id: theirs is made of title and text")
    check.finish()


def passage_from_record(record: Mapping[str, Any], where: str, columns: Columns = _NO_COLUMNS) -> Passage:
    """Read one record: an id, a title and a text.

    A number counts as text, and a list of sentences as one text. Of Pyserini's ``contents`` the first line is
    the title unless there is another. A record without an id gets one derived from title and text. ``source``
    (text) is taken over, with ``page`` (a number or label). A text that is nothing makes a passage without
    text. ``columns``: those by which the record was renamed, for messages.

    Raises:
        OddRecordError: starting with ``where``, for a record that is no passage.
    """
    text, title = record.get("text"), record.get("title")
    if type(title) is not str:
        title = _value(record, find_field(record, "title"), where)
    if type(text) is not str or not text:
        name = find_field(record, "text")
        if not name or (text is None and "text" in columns):
            names = [columns["text"]] if "text" in columns else NAMES["text"]
            found = ", ".join(str(each) for each in record if each not in columns)
            raise OddRecordError(
                where,
                "without a field of text",
                f"expected a text under {' or '.join(map(repr, names))}, but found: "
                f"{found[:200] or 'nothing'}. If one of them is the text, name it: columns=text=NAME.",
            )
        text = _value(record, name, where)
        if name == "contents":
            title, text = _split_contents(text, title)
    if is_nothing(text):
        text = ""
    source, page = record.get("source"), record.get("page")
    if not isinstance(source, str):  # the corpus's own affair
        source, page = "", 0
    elif not isinstance(page, str) and not (isinstance(page, int) and page > 0):
        page = 0
    return Passage(_identifier(record, where) or passage_id(title, text), title, text, source, page)


def _identifier(record: Mapping[str, Any], where: str) -> str:
    """Return a record's id, "" if it has none."""
    identifier = record.get("id")
    if type(identifier) is not str or not identifier.strip():
        identifier = _value(record, find_field(record, "id"), where)
    if len(identifier) > _LONGEST_ID // 4 and (size := len(identifier.encode())) > _LONGEST_ID:
        expected = f"expected an id of at most {_LONGEST_ID:,} bytes"
        raise OddRecordError(
            where, "with an id that is too long", f"{expected}, but '{identifier[:40]}...' has {size:,}."
        )
    return identifier.strip()


def _value(record: Mapping[str, Any], name: str, where: str) -> str:
    """Return a field as text, "" if there is none: a number's digits, a list's items with a space between."""
    value = record[name] if name else None
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, list | tuple):
            return " ".join(filter(None, map(as_text, value)))
        return as_text(value)
    except ValueError as error:
        raise OddRecordError(
            where, f"whose '{name}' is no text", f"expected '{name}' to be a text or a number, but {error}."
        ) from None


def _split_contents(contents: str, title: str) -> tuple[str, str]:
    """Return title and text of Pyserini's ``contents``: title, newline, text.

    A first line is the title only if no other title is given: corpora with both may put the text alone here.
    Pyserini's wiki18 quotes the title.
    """
    first, newline, rest = contents.partition("\n")
    if newline and (not title or title in (first, first.strip('"'))):
        return title or first.strip('"'), rest
    return title, contents
