"""From records of a corpus to passages, which have an id, a title and a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corag.core.types import Passage, passage_id
from corag.data.fields import NAMES, Columns, as_text, find_field, is_nothing, rename
from corag.data.records import FileItem, Note, OddRecordError, Record, read_records

CorpusItem = Passage | OddRecordError | Note
"""What a reader of corpora yields: a passage, a record that is none, or a sentence on what was guessed."""

PASSAGE_FIELDS = ("id", "title", "text", "source", "page")
_NO_COLUMNS: Columns = {}


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
    for path in paths:
        without_id = 0
        for item in read_file(path, reading):
            if not isinstance(item, Record):
                yield {}, item
                continue
            try:
                passage = passage_from_record(item.fields, item.where, reading.columns)
            except OddRecordError as odd:
                yield item.fields, odd
                continue
            without_id += "id" not in item.fields and not find_field(item.fields, "id")
            yield item.fields, passage
        if without_id and "id" not in reading.columns:
            yield {}, Note(f"{path}: {without_id:,} records have no id: theirs is made of title and text")


def passage_from_record(record: Mapping[str, Any], where: str, columns: Columns = _NO_COLUMNS) -> Passage:
    """Read one record: an id, a title and a text.

    A number counts as text, and a list of sentences as one text. Of Pyserini's ``contents`` the first line is
    the title unless there is another. A record without an id gets one derived from title and text. ``source``
    (text) is taken over, with ``page`` (a number or label). A text that is nothing makes a passage without
    text.

    Raises:
        OddRecordError: starting with ``where``, for a record that is no passage.
    """
    record = rename(record, columns) if columns else record
    text, title, identifier = record.get("text"), record.get("title"), record.get("id")
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
    if type(identifier) is not str or not identifier:
        identifier = _value(record, find_field(record, "id"), where)
    source, page = record.get("source"), record.get("page")
    if not isinstance(source, str):  # the corpus's own affair
        source, page = "", 0
    elif not isinstance(page, str) and not (isinstance(page, int) and page > 0):
        page = 0
    return Passage(identifier or passage_id(title, text), title, text, source, page)


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
