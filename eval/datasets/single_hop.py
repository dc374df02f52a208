"""Single-hop sets such as Natural Questions, TriviaQA and PopQA, in the layouts that toolkits share them in.

FlashRAG's: a JSON object per line with ``id``, ``question``, ``golden_answers`` and, maybe, ``metadata``.
BEIR's: a folder with ``queries.jsonl``, ``corpus.jsonl`` and judgements in ``qrels/NAME.tsv``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.files import open_text, read_jsonl
from core.types import Question
from eval.datasets.fields import (
    Record,
    distinct,
    gold_answer,
    name_record,
    record_id,
    require_id,
    text_field,
    texts_field,
)


def flashrag(record: Record, where: str) -> Question:
    """Read a record of FlashRAG's.

    ``kind`` is the metadata's ``type`` or, in PopQA, the relation asked for (``prop``). Raises
    :class:`DataError` for a record without gold answers, and for multiple choice, whose answers are numbers
    of choices.
    """
    place = name_record(record, where)
    if record.get("choices"):
        raise DataError(
            f"{place}: this is a multiple-choice question, which no scorer here compares: use a set with "
            "text answers."
        )
    answers = texts_field(record, "golden_answers", place)
    if not answers:
        raise DataError(f"{place}: field 'golden_answers' is missing or empty.")
    about = _metadata(record, place)
    kind = about.get("type") or about.get("prop")
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=distinct(*answers),
        kind=kind if isinstance(kind, str) else "",
    )


def beir(record: Record, where: str) -> Question:
    """Make a question of what :func:`beir_records` found.

    BEIR has no place for answers; they are taken from the query's metadata if it has ``answers`` or
    ``answer``, as some conversions do. Otherwise only recall can be measured.
    """
    place = name_record(record, where)
    about = _metadata(record, place)
    return Question(
        id=require_id(record, where),
        text=text_field(record, "text", where),
        answers=distinct(*gold_answer(about, place), *texts_field(about, "answers", place)),
        supporting=distinct(*record["judged"]),
    )


def beir_records(qrels: str) -> Iterator[dict[str, Any]]:
    """Stream the queries of a file of judgements, in its order, each with the ids ``judged`` relevant.

    Relevant is a score above 0. Raises :class:`DataError` if :func:`beir_queries` does, a query is not among
    them, or a line is not a query's id, a passage's id and a whole number.
    """
    judged = _read_qrels(qrels)
    found = beir_queries(qrels)
    queries = {record_id(record): record for record in read_jsonl(found) if record_id(record) in judged}
    for identity, passages in judged.items():
        if identity not in queries:
            raise DataError(
                f"'{qrels}' judges passages for the query '{identity}', which '{found}' does not have."
            )
        yield {**queries[identity], "judged": passages}


def beir_queries(qrels: str) -> Path:
    """Return the ``queries.jsonl`` of a file of judgements: beside its folder, as BEIR has it, or beside it.

    Raises :class:`DataError` if it is in neither place.
    """
    places = [Path(qrels).parent.parent / "queries.jsonl", Path(qrels).parent / "queries.jsonl"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataError(
            f"there is no queries.jsonl for '{qrels}': expected '{places[0]}' or '{places[1]}'. In BEIR's "
            "layout name the judgements as the question file, such as nq/qrels/test.tsv."
        )
    return found


def _read_qrels(path: str) -> dict[str, list[str]]:
    judged: dict[str, list[str]] = {}
    with open_text(path) as stream:
        for number, cells in enumerate(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if not cells or (number == 1 and cells[-1] == "score"):  # BEIR's own files have a header
                continue
            try:
                query, passage, score = cells
                relevant = int(score) > 0
            except ValueError:
                raise DataError(
                    f"{path}, line {number}: expected a query's id, a passage's id and a whole number, "
                    f"separated by tabs, but found {cells!r:.80}."
                ) from None
            gold = judged.setdefault(query, [])
            if relevant:
                gold.append(passage)
    return judged


def _metadata(record: Record, place: str) -> Mapping[str, Any]:
    value = record.get("metadata") or {}
    if not isinstance(value, Mapping):
        raise DataError(f"{place}: field 'metadata' must be an object, but is {value!r:.60}.")
    return value
