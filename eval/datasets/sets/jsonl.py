"""Our own question format: one JSON object per line, or a table with these columns.

.. code-block:: json

    {"id": "q1", "question": "Who founded the town where Ada was born?", "answers": ["Berel Tan", "B. Tan"],
     "supporting": ["p17", "p4"], "type": "bridge", "hops": 2,
     "decomposition": [{"question": "Where was Ada born?", "answer": "Orvale", "passage_id": "p17"}]}

``question`` is required. ``answers`` (the gold answer first, then its aliases) is what is scored; without it
a question is answered all the same. An ``id`` is made of the question's text where it is missing.
``decomposition`` has an object per hop: ``question`` and ``answer``, in which "#1" stands for the first
hop's answer, and where they are known ``passage_id`` and ``says``, both as one sentence. ``context_ids``
names passages of the index that were retrieved for the question beforehand, best first: CoRAG then does not
search for it. Passages themselves belong in an index. ``supporting_titles`` has the titles of the gold
passages: they count by these where the ids are not those of what is searched. ``wikipedia_ids`` is a list of
lists of page ids, for gold passages that are known by their page only (:mod:`eval.datasets.sets.kilt`).
``synthetic`` says what made a question that was not asked by a person, such as "made by NAME": runs
and tables repeat it.

Fields are found by the names in :data:`corag.data.fields.NAMES`, and any other by ``--columns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corag.core.errors import DataError, nearest
from corag.core.types import GoldHop, Question
from corag.data.fields import (
    NAMES,
    Record,
    find_field,
    is_nothing,
    list_field,
    name_record,
    require_id,
    text_field,
    texts_field,
)
from eval.datasets.dataset import Dataset

_FIELDS = (
    "id",
    "question",
    "answers",
    "supporting",
    "supporting_titles",
    "type",
    "hops",
    "decomposition",
    "context_ids",
    "wikipedia_ids",
    "synthetic",
)
_PASSAGES = frozenset(("context", "contexts", "ctxs", "paragraphs", "passages", "documents", "docs"))
_LONGEST_NUMBER = 9  # digits: Python refuses thousands
_MOST_UNREAD = 6  # fields that are not read, in a remark


def parse_question(record: Record, where: str) -> Question:
    """Check one record and make it a :class:`Question`.

    Raises :class:`DataError` naming ``where`` and the field.
    """
    record_name = name_record(record, where)
    name = find_field(record, "question")
    if not name:
        raise DataError(
            f"{where}: no question: expected a field {' or '.join(map(repr, NAMES['question']))}, but the "
            f"record has {', '.join(map(repr, map(str, record))) or 'nothing'}: name its fields with "
            "columns, such as columns=question=prompt,answers=gold."
        )
    text = text_field(record, name, where)  # before the id, which is made of it where there is none
    return Question(
        id=require_id(record, where),
        text=text,
        answers=tuple(texts_field(record, find_field(record, "answers"), record_name)),
        supporting=tuple(texts_field(record, "supporting", record_name)),
        kind=", ".join(texts_field(record, "type", record_name)),
        hops=_hops(record, record_name),
        decomposition=_decomposition(record, record_name),
        context_ids=tuple(texts_field(record, "context_ids", record_name)),
        pages=tuple(
            tuple(texts_field({"wikipedia_ids": pages}, "wikipedia_ids", record_name))
            for pages in list_field(record, "wikipedia_ids", record_name)
        ),
        titles=tuple(texts_field(record, "supporting_titles", record_name)),
        synthetic=_synthetic(record, record_name),
    )


def note_record(record: Record) -> list[str]:
    """Return remarks on a record: which of its fields are not read."""
    read = {find_field(record, field) for field in _FIELDS}
    rest = sorted(str(name) for name, value in record.items() if name not in read and not is_nothing(value))
    if not rest:
        return []
    more = ", ..." if len(rest) > _MOST_UNREAD else ""
    belongs = "; passages belong in an index" if _PASSAGES.intersection(rest) else ""
    hints = {
        name: "" if name in _PASSAGES else nearest(name, _FIELDS, otherwise="", cutoff=0.8)
        for name in rest[:_MOST_UNREAD]
    }
    names = ", ".join(f"{name} ({hint})" if hint else name for name, hint in hints.items())
    return [f"fields that are not read: {names}{more}{belongs}"]


def _hops(record: Record, where: str) -> int:
    text = "".join(texts_field(record, "hops", where))
    if text and not (text.isdecimal() and len(text) < _LONGEST_NUMBER):
        raise DataError(f"{where}: field 'hops' must be a whole number from 0, but is {text:.60}.")
    return int(text or 0)


def _synthetic(record: Record, where: str) -> str:
    maker = "".join(texts_field(record, "synthetic", where))
    return "" if maker == "no" else maker


def _decomposition(record: Record, where: str) -> tuple[GoldHop, ...]:
    hops = []
    for number, step in enumerate(list_field(record, "decomposition", where), 1):
        if not isinstance(step, Mapping):
            raise DataError(
                f"{where}: field 'decomposition' must be a list of objects, such as "
                f'[{{"question": "...", "answer": "..."}}], but has {step!r:.60}.'
            )
        hop = f"{where}, hop {number}"
        passage, sentence = ("".join(texts_field(step, name, hop)) for name in ("passage_id", "says"))
        hops.append(
            GoldHop(text_field(step, "question", hop), text_field(step, "answer", hop), passage, sentence)
        )
    return tuple(hops)


def question_record(question: Question) -> dict[str, Any]:
    """Return the record that :func:`parse_question` reads back as the same question."""
    return {
        "id": question.id,
        "question": question.text,
        "answers": list(question.answers),
        "supporting": list(question.supporting),
        "type": question.kind,
        "hops": question.hops,
        "decomposition": [
            {"question": hop.question, "answer": hop.answer, "passage_id": hop.passage_id}
            | ({"says": hop.says} if hop.says else {})
            for hop in question.decomposition
        ],
        **({"supporting_titles": list(question.titles)} if question.titles else {}),
        **({"context_ids": list(question.context_ids)} if question.context_ids else {}),
        **({"wikipedia_ids": [list(pages) for pages in question.pages]} if question.pages else {}),
        **({"synthetic": question.synthetic} if question.synthetic else {}),
    }


DATASETS = (
    Dataset(
        "jsonl",
        "our own format: JSON lines, a JSON list or a table",
        parse_question,
        gold="answers",
        note_record=note_record,
        columns=_FIELDS,
    ),
)
