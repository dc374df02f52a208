"""Our own question format, one JSON object per line.

.. code-block:: json

    {"id": "q1", "question": "Who founded the town where Ada was born?", "answers": ["Berel Tan", "B. Tan"],
     "supporting": ["p17", "p4"], "type": "bridge", "hops": 2,
     "decomposition": [{"question": "Where was Ada born?", "answer": "Orvale", "passage_id": "p17"}]}

``id``, ``question`` and ``answers`` (the gold answer first, then its aliases) are required. ``context_ids``
names passages that were retrieved for the question beforehand, best first: CoRAG then does not search for it.
``wikipedia_ids`` is a list of lists of page ids, for gold passages that are known by their page only
(:mod:`eval.datasets.kilt`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import DataError, nearest
from core.types import GoldHop, Question

_REQUIRED = ("id", "question", "answers")
_FIELDS = (*_REQUIRED, "supporting", "type", "hops", "decomposition", "context_ids", "wikipedia_ids")
_HOP_REQUIRED = ("question", "answer")
_HOP_FIELDS = (*_HOP_REQUIRED, "passage_id", "says")


def parse_question(record: Mapping[str, Any], where: str) -> Question:
    """Check one record and make it a :class:`Question`.

    Raises :class:`DataError` naming ``where`` and the field.
    """
    _check_fields(record, _REQUIRED, _FIELDS, where)
    hops = record.get("hops", 0)
    if not isinstance(hops, int) or isinstance(hops, bool) or hops < 0:
        raise DataError(f"{where}: field 'hops' must be a whole number from 0, but is {hops!r}.")
    answers = _texts(record, "answers", where)
    if not answers:
        raise DataError(f"{where}: field 'answers' is empty: give at least one gold answer.")
    return Question(
        id=_text(record, "id", where),
        text=_text(record, "question", where),
        answers=answers,
        supporting=_texts(record, "supporting", where),
        kind=_text(record, "type", where) if record.get("type") else "",
        hops=hops,
        decomposition=_decomposition(record, where),
        context_ids=_texts(record, "context_ids", where),
        pages=_pages(record, where),
    )


def question_columns(question: Question) -> dict[str, Any]:
    """Return the fields of a question that a flat table has, by the names that they have in files."""
    return {
        "id": question.id,
        "question": question.text,
        "answers": list(question.answers),
        "supporting": list(question.supporting),
        "type": question.kind,
        "hops": question.hops,
    }


def question_record(question: Question) -> dict[str, Any]:
    """Return the record that :func:`parse_question` reads back as the same question."""
    return question_columns(question) | {
        "decomposition": [
            {"question": hop.question, "answer": hop.answer, "passage_id": hop.passage_id}
            | ({"says": hop.says} if hop.says else {})
            for hop in question.decomposition
        ],
        **({"context_ids": list(question.context_ids)} if question.context_ids else {}),
        **({"wikipedia_ids": [list(pages) for pages in question.pages]} if question.pages else {}),
    }


def _decomposition(record: Mapping[str, Any], where: str) -> tuple[GoldHop, ...]:
    steps = record.get("decomposition", [])
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise DataError(f"{where}: field 'decomposition' must be a list of objects, but is {steps!r:.60}.")
    hops = []
    for number, step in enumerate(steps, 1):
        place = f"{where}, hop {number}"
        _check_fields(step, _HOP_REQUIRED, _HOP_FIELDS, place)
        passage = _text(step, "passage_id", place) if step.get("passage_id") else ""
        says = _text(step, "says", place) if step.get("says") else ""
        hops.append(GoldHop(_text(step, "question", place), _text(step, "answer", place), passage, says))
    return tuple(hops)


def _pages(record: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], ...]:
    groups = record.get("wikipedia_ids", [])
    if not isinstance(groups, list):
        raise DataError(
            f"{where}: field 'wikipedia_ids' must be a list of lists of page ids, but is {groups!r:.60}."
        )
    return tuple(_texts({"wikipedia_ids": group}, "wikipedia_ids", where) for group in groups)


def _check_fields(
    record: Mapping[str, Any], required: tuple[str, ...], known: tuple[str, ...], where: str
) -> None:
    for field in record:
        if field not in known:
            raise DataError(f"{where}: unknown field '{field}': {nearest(field, known)}")
    for field in required:
        if field not in record:
            raise DataError(
                f"{where}: field '{field}' is missing; the record has {', '.join(map(repr, record))}."
            )


def _text(record: Mapping[str, Any], field: str, where: str) -> str:
    value = record[field]
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: field '{field}' must be a non-empty text, but is {value!r:.60}.")
    return value


def _texts(record: Mapping[str, Any], field: str, where: str) -> tuple[str, ...]:
    values = record.get(field, [])
    if not isinstance(values, list) or not all(isinstance(value, str) and value.strip() for value in values):
        raise DataError(f"{where}: field '{field}' must be a list of non-empty texts, but is {values!r:.60}.")
    return tuple(values)
