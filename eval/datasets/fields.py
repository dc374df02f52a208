"""Reading the fields of raw question records, so that a wrong one is named.

Releases differ: Hugging Face turns lists of objects into columns and missing fields into None, tables hold
lists as text. ``where`` names a record in errors, such as "dev.json, record 3", ``place`` its id as well.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from core.errors import DataError
from core.files import parse_json

Record = Mapping[str, Any]

_ID_FIELDS = ("_id", "_1", "id")  # `_1` is what pandas calls a column `_id` when it writes rows out as tuples


def record_id(record: Record) -> str:
    """Return a raw record's id, or "" if it has none."""
    return next((str(record[name]) for name in _ID_FIELDS if record.get(name) not in (None, "")), "")


def name_record(record: Record, where: str) -> str:
    """Name a record for an error message: its place and, where it has one, its id."""
    identity = record_id(record)
    return f"{where} (id {identity})" if identity else where


def unpack(value: object, field: str, where: str) -> Any:
    """Return the value of a field that may be stored as JSON or Python text.

    Raises :class:`DataError` if that text is broken.
    """
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except json.JSONDecodeError:
        pass
    try:
        found = ast.literal_eval(value)  # pandas writes a list into a table as Python does, in single quotes
        json.dumps(found, ensure_ascii=False, default=str).encode()  # no halves of characters, as above
        return found
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise DataError(
            f"{where}: field '{field}' holds text that is neither JSON nor a Python literal."
        ) from None


def distinct(*texts: str) -> tuple[str, ...]:
    """Return the texts without repeats, in order of first appearance."""
    return tuple(dict.fromkeys(texts))


def require_id(record: Record, where: str) -> str:
    """Return a record's id. Raises :class:`DataError` if it has none."""
    identity = record_id(record)
    if not identity:
        raise DataError(f"{where}: the record has no id; expected a field '_id' or 'id'.")
    return identity


def text_field(record: Record, field: str, where: str) -> str:
    """Return a field that must hold text, stripped."""
    value = record.get(field)
    if not isinstance(value, str) or not value.strip():
        found = (
            f"is {value!r:.60}"
            if field in record
            else f"is missing; the record has {', '.join(map(repr, record))}"
        )
        raise DataError(
            f"{name_record(record, where)}: field '{field}' must be a non-empty text, but {found}."
        )
    return value.strip()


def gold_answer(record: Record, where: str) -> tuple[str, ...]:
    """Return the field ``answer``; () where it is absent, None or "", as in test splits."""
    return () if record.get("answer") in (None, "") else (text_field(record, "answer", where),)


def list_field(record: Record, field: str, place: str) -> list[Any]:
    """Return a list field that may be absent, or None, or stored as text."""
    value = unpack(record.get(field), field, place)
    if value is not None and not isinstance(value, list | tuple):
        raise DataError(f"{place}: field '{field}' must be a list, but is {value!r:.60}.")
    return list(value or ())


def texts_field(record: Record, field: str, place: str) -> list[str]:
    """Return a list field of texts, blank ones left out."""
    values = list_field(record, field, place)
    if not all(isinstance(value, str) for value in values):
        raise DataError(f"{place}: field '{field}' must be a list of texts, but is {values!r:.60}.")
    return [value for value in values if value.strip()]
