"""Reading the fields of raw question records, so that a wrong one is named.

Releases differ: Hugging Face turns lists of objects into columns and missing fields into None, tables hold
lists as text. ``where`` names a record in errors, such as "dev.json, record 3", ``record_name`` its id, too.
"""

from __future__ import annotations

import ast
import io
import json
import math
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from corag.core.errors import DataError
from corag.core.files import parse_json

Record = Mapping[str, Any]

_ID_FIELDS = ("_id", "_1", "id")  # `_1` is what pandas calls a column `_id` when it writes rows out as tuples


def record_id(record: Record) -> str:
    """Return a raw record's id, or "" if it has none."""
    return next(filter(None, (scalar_text(record.get(name)) for name in _ID_FIELDS)), "")


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
        # pandas writes lists with Python's single quotes, and arrays without commas: "['a' 'b']".
        literal = _array(value) or ast.literal_eval(value)
        json.dumps(literal, ensure_ascii=False, default=str).encode()  # no halves of characters, as above
        return literal
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise DataError(
            f"{where}: field '{field}' holds text that is neither JSON nor a Python literal."
        ) from None


def _array(text: str) -> list[str]:
    """Return the texts of a printed array; [] for anything else.

    Python reads texts that stand side by side as one: ``['a' 'b']`` would be ``['ab']``.
    """
    if not (text.lstrip().startswith("[") and text.rstrip().endswith("]")):
        return []
    try:
        tokens = [
            each
            for each in tokenize.generate_tokens(io.StringIO(text.strip()[1:-1]).readline)
            if each.string.strip()
        ]
    except (tokenize.TokenError, SyntaxError):
        return []
    beside = len(tokens) > 1 and all(each.type == tokenize.STRING for each in tokens)
    return [ast.literal_eval(each.string) for each in tokens] if beside else []


def scalar_text(value: object) -> str:
    """Return a single value as text, "" for one that is missing or no single value.

    >>> scalar_text(1990.0), scalar_text(True), scalar_text(float("nan"))
    ('1990', 'yes', '')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # A table's column of whole numbers is one of fractions as soon as a cell is empty.
        return "" if not math.isfinite(value) else str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, datetime):
        return value.isoformat(" ") if value.time() != value.min.time() else value.date().isoformat()
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int | date) else ""


_TEXT_NAMES = ("text", "answer", "value", "content", "name")
_ID_NAMES = ("passage_id", "psg_id", "docid", "doc_id", "_id", "id")


def flat_texts(value: object, names: Sequence[str] = _TEXT_NAMES) -> list[str]:
    """Return all texts in a value: a bare text or number, a list, a list written as text, objects.

    Of an object the first field counts that is among ``names``, and ``aliases`` after it.

    >>> flat_texts({"text": ["Ada", "A. Tan"], "answer_start": [3, 9]}), flat_texts(1990)
    (['Ada', 'A. Tan'], ['1990'])
    """
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            texts = unpack(value, "", "")
        except DataError:
            texts = None  # such as "[Redacted]"
        if isinstance(texts, list) and all(isinstance(each, str) for each in texts):
            value = texts
    return list(_texts_within(value, names))


def _texts_within(value: object, names: Sequence[str]) -> Iterator[str]:
    if isinstance(value, Mapping):
        lower = {str(name).lower(): each for name, each in value.items()}
        for name in (next((name for name in names if name in lower), ""), "aliases"):
            yield from _texts_within(lower.get(name), names)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts_within(each, names)
    elif text := scalar_text(value):
        yield text


def flat_ids(value: object) -> list[str]:
    """Return all ids in a value: as :func:`flat_texts`, or the keys of ``{id: relevance}`` that are above 0.

    Raises :class:`DataError` for lists within a list that offer a choice, as AutoRAG writes them.
    """
    if isinstance(value, Mapping) and all(isinstance(each, int | float) for each in value.values()):
        return [str(name) for name, relevance in value.items() if relevance > 0]
    if isinstance(value, list | tuple) and any(
        isinstance(each, list | tuple) and len(each) > 1 for each in value
    ):
        raise DataError("it offers a choice of passages, for which there is no recall here")
    return flat_texts(value, _ID_NAMES)


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
        problem = (
            f"is {value!r:.60}"
            if field in record
            else f"is missing; the record has {', '.join(map(repr, record))}"
        )
        raise DataError(
            f"{name_record(record, where)}: field '{field}' must be a non-empty text, but {problem}."
        )
    return value.strip()


def gold_answer(record: Record, where: str) -> tuple[str, ...]:
    """Return the field ``answer``; () where it is absent, None or "", as in test splits."""
    return () if record.get("answer") in (None, "") else (text_field(record, "answer", where),)


def list_field(record: Record, field: str, record_name: str) -> list[Any]:
    """Return a list field that may be absent, or None, or stored as text."""
    value = unpack(record.get(field), field, record_name)
    if value is not None and not isinstance(value, list | tuple):
        raise DataError(f"{record_name}: field '{field}' must be a list, but is {value!r:.60}.")
    return list(value or ())


def texts_field(record: Record, field: str, record_name: str) -> list[str]:
    """Return a list field of texts, blank ones left out."""
    values = list_field(record, field, record_name)
    if not all(isinstance(value, str) for value in values):
        raise DataError(f"{record_name}: field '{field}' must be a list of texts, but is {values!r:.60}.")
    return [value for value in values if value.strip()]


def metadata_field(record: Record, record_name: str) -> Mapping[str, Any]:
    """Return the field ``metadata``, an object that may be absent."""
    value = record.get("metadata") or {}
    if not isinstance(value, Mapping):
        raise DataError(f"{record_name}: field 'metadata' must be an object, but is {value!r:.60}.")
    return value
