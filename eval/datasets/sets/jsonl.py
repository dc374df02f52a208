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
``synthetic`` says what made a question that nobody asked, such as "made by NAME": runs
and tables repeat it.

Files of others are read by the names that their fields usually have (:data:`NAMES`), and any other by
``--columns``. ``--strict`` takes the format as it stands here and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from corag.core.errors import DataError, nearest
from corag.core.types import GoldHop, Question
from eval.datasets.dataset import Dataset
from eval.datasets.fields import flat_ids, flat_texts, scalar_text, unpack

NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "_id", "_1", "qid", "query_id", "question_id", "example_id", "uid"),
    "question": ("question", "query", "user_input", "prompt", "input", "question_text", "text"),
    # What ragas and its like call "answer" beside a reference is the answer of a system.
    "answers": (
        "answers", "golden_answers", "gold_answers", "ground_truths", "ground_truth", "reference_answer",
        "reference", "expected_answer", "expected_output", "gold_answer", "gold", "generation_gt",
        "possible_answers", "answer", "short_answers", "output", "outputs", "target", "targets",
    ),
    "supporting": (
        "supporting", "gold_ids", "gold_passage_ids", "retrieval_gt", "relevant_docs", "relevant_doc_ids",
        "positive_ctxs", "positive_passages",
    ),
    "supporting_titles": ("supporting_titles", "gold_titles"),
    "type": ("type", "question_type", "kind"),
    "hops": ("hops", "num_hops"),
    "decomposition": ("decomposition",),
    "context_ids": ("context_ids", "context_doc_ids"),
    "wikipedia_ids": ("wikipedia_ids",),
    "synthetic": ("synthetic",),
}  # fmt: skip
"""What fields of our format are called in files of others; the first that holds anything is taken."""

_NESTING_FIELDS = frozenset(
    ("inputs", "outputs", "input", "expectedoutput", "referenceoutputs", "row", "example")
)
_ALIASES = ("answer_aliases", "aliases")
_PASSAGES = frozenset(("context", "contexts", "ctxs", "paragraphs", "passages", "documents", "docs"))
_PASSAGES_ELSEWHERE = "passages belong in an index, and context_ids may name some of them by id"
_MAX_UNREAD = 6  # fields that are not read, in a remark
_REQUIRED_FIELDS = ("id", "question")
_FIELDS = (
    *_REQUIRED_FIELDS,
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
_HOP_REQUIRED = ("question", "answer")
_HOP_FIELDS = (*_HOP_REQUIRED, "passage_id", "says")


def parse_question(record: Mapping[str, Any], where: str) -> Question:
    """Check one record and make it a :class:`Question`.

    Raises :class:`DataError` naming ``where`` and the field.
    """
    _check_fields(record, _REQUIRED_FIELDS, _FIELDS, where)
    hops = record.get("hops", 0)
    if not isinstance(hops, int) or isinstance(hops, bool) or hops < 0:
        raise DataError(f"{where}: field 'hops' must be a whole number from 0, but is {hops!r}.")
    return Question(
        id=_text(record, "id", where),
        text=_text(record, "question", where),
        answers=_texts(record, "answers", where),
        supporting=_texts(record, "supporting", where),
        kind=_text(record, "type", where) if record.get("type") else "",
        hops=hops,
        decomposition=_decomposition(record, where),
        context_ids=_texts(record, "context_ids", where),
        pages=_pages(record, where),
        titles=_texts(record, "supporting_titles", where),
        synthetic=_text(record, "synthetic", where) if record.get("synthetic") else "",
    )


def canonical(record: Mapping[str, Any], remark: Callable[[str], None]) -> dict[str, Any]:
    """Return a record of whatever names and types as one of our format; ``remark`` is called for each guess.

    Raises :class:`DataError` for a record without a question.
    """
    by_name = {name: each for name, each in _by_squeezed_name(record).items() if not _is_blank(each[1])}
    values: dict[str, Any] = {}
    read_names = {name for name in map(_squeeze, _ALIASES) if name in by_name}
    aliases = [by_name[name][1] for name in sorted(read_names)]
    for name, others in _SQUEEZED_NAMES.items():
        fitting = [other for other in others if other in by_name]
        if fitting == ["text"] and "title" in by_name:
            continue  # a passage, whose text is no question
        for other in fitting[:1]:
            if other != _squeeze(name):
                remark(f"field '{by_name[other][0]}' is read as '{name}'")
            values[name] = by_name[other][1]
            read_names.add(other)
    if rest := sorted(by_name[name][0] for name in by_name.keys() - read_names):
        more = ", ..." if len(rest) > _MAX_UNREAD else ""
        remark(f"fields that are not read: {', '.join(map(_describe_unread, rest[:_MAX_UNREAD]))}{more}")
    if "question" not in values:
        raise DataError(
            f"no question: expected a field 'question' (or {', '.join(NAMES['question'][1:5])}), but the "
            f"record has {', '.join(map(repr, map(str, record))) or 'nothing'}: name its fields with "
            "columns, such as question=prompt,answers=gold"
        )
    return _with_types(values, aliases, remark)


def _describe_unread(name: str) -> str:
    """Return a field's name, with ours if it is a misspelling of one."""
    if _squeeze(name) in _PASSAGES:
        return f"'{name}' ({_PASSAGES_ELSEWHERE})"
    near = get_close_matches(name, NAMES, n=1, cutoff=0.8)
    return f"'{name}'" + (f" (is '{near[0]}' meant?)" if near else "")


def _with_types(values: dict[str, Any], aliases: list[Any], remark: Callable[[str], None]) -> dict[str, Any]:
    """Return the fields with the types of our format, without those that cannot have them."""
    question = values["question"]
    if isinstance(question, Mapping):  # Natural Questions: {"text": ..., "tokens": ...}
        question = question.get("text")
    text = question if isinstance(question, str) else scalar_text(question)
    if not text.strip():
        raise DataError(f"field 'question' must be a non-empty text, but is {question!r:.60}")
    answers = values.get("answers")
    fields: dict[str, Any] = {
        "question": text,
        "answers": list(dict.fromkeys([*flat_texts(answers), *flat_texts(aliases)])),
    }
    if answers is not None and not fields["answers"]:
        remark("the gold answers hold no text")
    if identity := scalar_text(values.get("id")):
        fields["id"] = identity
    converters: dict[str, Callable[[Any], Any]] = {
        "supporting": flat_ids,
        "supporting_titles": flat_texts,
        "context_ids": flat_ids,
        "type": lambda value: ", ".join(flat_texts(value)),
        "hops": _whole_number,
        "synthetic": lambda value: "" if (text := scalar_text(value)) == "no" else text,
        "decomposition": lambda value: unpack(value, "decomposition", "record"),
        "wikipedia_ids": lambda value: [
            flat_ids(pages) for pages in unpack(value, "wikipedia_ids", "record")
        ],
    }
    for name, convert in converters.items():
        if name in values:
            try:
                fields[name] = convert(values[name])
            except (DataError, ValueError, TypeError) as error:
                remark(f"{name} left out: {error}")
    return fields


def _whole_number(value: Any) -> int:
    text = scalar_text(value)
    if not text.isdecimal():
        raise ValueError(f"it must be a whole number from 0, but is {value!r:.60}")
    return int(text)


def _by_squeezed_name(record: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return (name as written, value) by squeezed name. Fields of inputs and outputs are the record's own."""
    by_name: dict[str, tuple[str, Any]] = {}
    for name, value in record.items():
        if _squeeze(name) in _NESTING_FIELDS and isinstance(value, Mapping):
            by_name |= {_squeeze(inner): (f"{name}.{inner}", each) for inner, each in value.items()}
        else:
            by_name.setdefault(_squeeze(name), (str(name), value))
    return by_name


@lru_cache(1000)
def _squeeze(name: object) -> str:
    """Return a name without what writers of fields differ in: "Question ID" and "question_id" are one."""
    return re.sub(r"[\W_]", "", str(name)).lower()


_SQUEEZED_NAMES = {name: tuple(map(_squeeze, others)) for name, others in NAMES.items()}


def _is_blank(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, float) and value != value)
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, list | tuple | Mapping) and not value)
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
        **({"supporting_titles": list(question.titles)} if question.titles else {}),
        **({"context_ids": list(question.context_ids)} if question.context_ids else {}),
        **({"wikipedia_ids": [list(pages) for pages in question.pages]} if question.pages else {}),
        **({"synthetic": question.synthetic} if question.synthetic else {}),
    }


def _decomposition(record: Mapping[str, Any], where: str) -> tuple[GoldHop, ...]:
    steps = record.get("decomposition", [])
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise DataError(
            f"{where}: field 'decomposition' must be a list of objects, such as "
            f'[{{"question": "...", "answer": "..."}}], but is {steps!r:.60}.'
        )
    hops = []
    for number, step in enumerate(steps, 1):
        hop_name = f"{where}, hop {number}"
        _check_fields(step, _HOP_REQUIRED, _HOP_FIELDS, hop_name)
        passage = _text(step, "passage_id", hop_name) if step.get("passage_id") else ""
        sentence = _text(step, "says", hop_name) if step.get("says") else ""
        hops.append(
            GoldHop(_text(step, "question", hop_name), _text(step, "answer", hop_name), passage, sentence)
        )
    return tuple(hops)


def _pages(record: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], ...]:
    groups = record.get("wikipedia_ids", [])
    if not isinstance(groups, list):
        raise DataError(
            f"{where}: field 'wikipedia_ids' must be a list of lists of page ids, but is {groups!r:.60}."
        )
    return tuple(_texts({"wikipedia_ids": group}, "wikipedia_ids", where) for group in groups)


def _check_fields(
    record: Mapping[str, Any], required_fields: tuple[str, ...], allowed_fields: tuple[str, ...], where: str
) -> None:
    for field in record:
        if field not in allowed_fields:
            of_passages = _squeeze(field) in _PASSAGES and "context_ids" in allowed_fields
            hint = f"{_PASSAGES_ELSEWHERE}." if of_passages else nearest(field, allowed_fields)
            raise DataError(f"{where}: unknown field '{field}': {hint}")
    for field in required_fields:
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


DATASETS = (
    Dataset(
        "jsonl",
        "our own format, and files of others with usual names of fields",
        parse_question,
        gold="answers",
        optional=tuple(name for name in _FIELDS if name not in (*_REQUIRED_FIELDS, "answers")),
        canonical=canonical,
        columns=tuple(NAMES),
    ),
)
