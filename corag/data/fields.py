"""What fields are called, and their values: one table for questions and passages.

A field is found by our name, then by those of the official formats; :class:`Columns` names what has another.
Values are read alike everywhere: an id is text, a date is its text; NaN, null and a text of punctuation
alone are nothing.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from unicodedata import category

from corag.core.errors import ConfigError, DataError, nearest
from corag.core.system.files import parse_json

NAMES: Mapping[str, Sequence[str]] = {
    "id": ("id", "_id", "docid", "pid", "qid", "query_id"),  # ours; BEIR; MS MARCO; CoRAG
    "title": ("title", "wikipedia_title"),  # ours; KILT
    "text": ("text", "contents", "passage", "body", "paragraph_text"),  # ours; Pyserini; MS MARCO; MuSiQue
    "question": ("question", "query"),  # ours; CoRAG, MS MARCO
    "answers": ("answers", "golden_answers", "possible_answers", "answer"),  # ours; FlashRAG; PopQA; most
}
"""By our name of a field, what official formats call it, ours first."""

Record = Mapping[str, Any]
Columns = Mapping[str, str]
"""By our name of a field, what a file calls it; a field within another is written with a dot."""


def parse_columns(pairs: Sequence[str], fields: Collection[str]) -> dict[str, str]:
    """Read ["text=body", "title=metadata.name"]; ``fields``: those that there are.

    Raises :class:`ConfigError` for a text that is no pair, an unknown field or one that is named twice.
    """
    columns: dict[str, str] = {}
    for pair in pairs:
        name, _, column = (part.strip() for part in pair.partition("="))
        if not column or name in columns:
            raise ConfigError(
                f"columns has '{pair}': expected FIELD=COLUMN, each field once, such as text=body."
            )
        if name not in fields:
            raise ConfigError(f"columns: there is no field '{name}': {nearest(name, fields)}")
        columns[name] = column
    return columns


class ColumnCheck:
    """Looks for columns that no record has."""

    def __init__(self, columns: Columns) -> None:
        self._unseen, self._names = dict(columns), set[str]()

    def add(self, record: Record) -> None:
        """Note what a record has."""
        if self._unseen:
            self._names.update(map(str, record))
            self._unseen = {
                name: column for name, column in self._unseen.items() if value_at(record, column) is None
            }

    def finish(self) -> None:
        """Raise :class:`ConfigError` for a column that none of the records has."""
        if self._unseen and self._names:
            column = next(iter(self._unseen.values()))
            raise ConfigError(
                f"columns names '{column}', which no record has: {nearest(column, self._names)}"
            )


def rename(record: Record, columns: Columns) -> Record:
    """Return a record whose fields are called as ours are."""
    if not columns:
        return record
    # What a field is called otherwise does not take the place of the column that was named for it.
    others = {*columns.values(), *(other for name in columns for other in NAMES.get(name, (name,)))}
    rest = {name: value for name, value in record.items() if name not in others}
    return rest | {name: value_at(record, column) for name, column in columns.items()}


def value_at(record: Record, name: str) -> Any:
    """Return a field, or one within others ("metadata.title"); None if it is not there."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def find_field(record: Record, field: str) -> str:
    """Return what a record calls a field: the first name with a value, else one that is there, else ""."""
    names = [name for name in NAMES.get(field, (field,)) if name in record]
    return next((name for name in names if not is_nothing(record[name])), names[0] if names else "")


def is_nothing(value: object) -> bool:
    """Whether a value is none: null, NaN, an empty list, a text of spaces and punctuation alone."""
    if isinstance(value, str):
        return not any(map(str.isalnum, value)) and all(category(each)[0] in "PZC" for each in value)
    return (
        value is None or (isinstance(value, float | Decimal) and math.isnan(value)) or value in ([], {}, ())
    )


def as_text(value: object) -> str:
    """Return a single value as text, "" for nothing.

    Raises :class:`ValueError` for an object, a list and bytes that are not UTF-8.

    >>> as_text(1990.0), as_text(True), as_text(float("nan")), as_text(date(1990, 1, 31))
    ('1990', 'yes', '', '1990-01-31')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_nothing(value):
        return ""
    if isinstance(value, bytes):
        return value.decode().strip()
    if isinstance(value, float):
        # A table's column of whole numbers is one of fractions as soon as a cell is empty.
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, datetime):
        return value.isoformat(" ") if value.time() != value.min.time() else value.date().isoformat()
    if isinstance(value, str | int | date | time | Decimal):
        return str(value).strip()
    inner = f": name a field in it, such as {next(iter(value))}" if isinstance(value, Mapping) else ""
    raise ValueError(f"{value!r:.60} is no text{inner}")


def as_texts(value: object) -> list[str]:
    """Return the texts of a list, which a table may hold as text; a single value is a list of one.

    Raises :class:`ValueError` for what holds something else.

    >>> as_texts(["Ada", None, 1990]), as_texts("['Ada', 'A. Tan']"), as_texts("Ada")
    (['Ada', '1990'], ['Ada', 'A. Tan'], ['Ada'])
    """
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        with contextlib.suppress(ValueError):  # of "[Redacted]"
            value = unpack(value)
    values = value if isinstance(value, list | tuple) else [value]
    return list(filter(None, map(as_text, values)))


def unpack(value: object) -> Any:
    """Return a value that may be stored as JSON or as a Python literal, as tables have lists and objects.

    Raises :class:`ValueError` for a text that is neither.
    """
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except json.JSONDecodeError:
        pass
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("it holds text that is neither JSON nor a Python literal") from None


def record_id(record: Record) -> str:
    """Return a record's id, or "" if it has none."""
    # A record with both was numbered by its columns' writer, as 2WikiMultihopQA's are.
    name = "_id" if record.get("_id") else find_field(record, "id")
    try:
        return as_text(record[name]) if name else ""
    except ValueError as error:
        raise DataError(f"field '{name}': {error}") from None


def name_record(record: Record, where: str) -> str:
    """Name a record for an error message: its place and, where it has one, its id."""
    identity = record_id(record)
    return f"{where} (id {identity})" if identity else where


def require_id(record: Record, where: str) -> str:
    """Return a record's id. Raises :class:`DataError` if it has none."""
    identity = record_id(record)
    if not identity:
        raise DataError(f"{where}: the record has no id; expected a field '_id' or 'id'.")
    return identity


def text_field(record: Record, field: str, where: str) -> str:
    """Return a field that must hold text or a number, as text."""
    try:
        text = as_text(record.get(field))
    except ValueError:
        text = ""
    if text:
        return text
    problem = (
        f"is {record[field]!r:.60}"
        if field in record
        else f"is missing; the record has {', '.join(map(repr, record)) or 'no fields'}"
    )
    raise DataError(f"{name_record(record, where)}: field '{field}' must be a non-empty text, but {problem}.")


def gold_answer(record: Record, where: str) -> tuple[str, ...]:
    """Return the field ``answer``; () where it is absent, None or "", as in test splits."""
    return () if is_nothing(record.get("answer")) else (text_field(record, "answer", where),)


def list_field(record: Record, field: str, where: str) -> list[Any]:
    """Return a list field that may be absent, or None, or stored as text."""
    value = unpacked(record, field, where)
    if value is not None and not isinstance(value, list | tuple):
        raise DataError(f"{where}: field '{field}' must be a list, but is {value!r:.60}.")
    return list(value or ())


def texts_field(record: Record, field: str, where: str) -> list[str]:
    """Return a field of texts, or of one, without blank ones."""
    try:
        return as_texts(record.get(field))
    except ValueError as error:
        raise DataError(f"{where}: field '{field}' must be a list of texts, but {error}.") from None


def object_field(record: Record, field: str, where: str) -> Mapping[str, Any]:
    """Return a field with an object, which may be absent."""
    value = unpacked(record, field, where) or {}
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: field '{field}' must be an object, but is {value!r:.60}.")
    return value


def unpacked(record: Record, field: str, where: str) -> Any:
    """Return a field that may be stored as text, see :func:`unpack`. Raises :class:`DataError`."""
    try:
        return unpack(record.get(field))
    except ValueError as error:
        raise DataError(f"{where}: field '{field}': {error}.") from None


def distinct(*texts: str) -> tuple[str, ...]:
    """Return the texts without repeats, in order of first appearance."""
    return tuple(dict.fromkeys(texts))
