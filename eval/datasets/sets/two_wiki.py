"""2WikiMultihopQA (Ho et al. 2020), in its official files, and its file of answer aliases.

Test splits hide their answers: a record whose ``answer`` is absent, None or "" has none, and is not scored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag.core.errors import DataError
from corag.core.language.text import mentions
from corag.core.system.files import parse_json
from corag.core.types import GoldHop, Question
from corag.data.fields import (
    Record,
    distinct,
    gold_answer,
    list_field,
    name_record,
    require_id,
    text_field,
    texts_field,
)
from corag.data.packed import content_ending, open_bytes
from corag.data.records import FileItem, OddRecordError, read_records
from corag.data.records import Record as FileRecord
from corag.data.text import read_lines
from eval.datasets.dataset import Aliases, Dataset
from eval.datasets.paragraphs import (
    context_paragraphs,
    fact_titles,
    gold_ids,
    gold_titles,
    optional_paragraphs,
)


def parse(record: Record, where: str) -> Question:
    """Read a record.

    ``hops`` counts the evidence triples, which a comparison takes side by side. Sub-questions (``qa_pairs``)
    exist in a decomposed release only, which answers them in sentences; the short answer is taken from the
    evidence triples where one fits. They do not say which passage answers them.
    """
    record_name = name_record(record, where)
    paragraphs = optional_paragraphs(record, where, context_paragraphs)
    return Question(
        id=require_id(record, where),
        text=text_field(record, "question", where),
        answers=gold_answer(record, where),
        supporting=gold_ids(paragraphs),
        kind=str(record.get("type") or ""),
        hops=len(list_field(record, "evidences", record_name)),
        decomposition=tuple(
            _parse_hop(index, pair, list_field(record, "evidences", record_name), record_name)
            for index, pair in enumerate(list_field(record, "qa_pairs", record_name))
        ),
        titles=fact_titles(record, record_name) or gold_titles(paragraphs),
    )


def _parse_hop(index: int, pair: Record, evidences: list[Any], record_name: str) -> GoldHop:
    """Return a sub-question with the object of the (subject, relation, object) that its sentence states.

    If no triple fits, the sentence is the answer.
    """
    # Sub-questions mostly stand in the order of the triples, so that of the same place is tried first. A date
    # may be written in two ways: then the subject tells. What the sub-question itself names, such as the
    # subject that its sentence repeats, is not its answer.
    question, sentence = text_field(pair, "question", record_name), text_field(pair, "answer", record_name)
    triples = [triple for triple in evidences if isinstance(triple, list | tuple) and len(triple) == 3]
    candidates = triples[index : index + 1] + triples
    new = [triple for triple in candidates if not mentions([question], [str(triple[2])])]
    in_sentence = [triple for triple in new if mentions([sentence], [str(triple[2])])]
    about = [triple for triple in candidates if mentions([question], [str(triple[0])])]
    fitting = [triple for triple in in_sentence if triple in about] or in_sentence or about
    answer = str(fitting[0][2]) if fitting else sentence
    return GoldHop(question, answer, says=sentence if mentions([sentence], [answer]) else "")


def read_file(path: str | Path, *, encoding: str = "", delimiter: str = "") -> Iterator[FileItem]:
    """Stream the records of an official file, or of the release in columns: ``{column: {row: value}}``."""
    if content_ending(path) == ".json":
        with open_bytes(path) as stream:
            is_object = stream.read(1000).lstrip()[:1] == b"{"
        if is_object and (columns := _read_columns(path, encoding)):
            for row in columns["question"]:
                yield FileRecord(
                    f"{path}, row {row}", {name: column[row] for name, column in columns.items()}
                )
            return
    yield from read_records(path, encoding=encoding, delimiter=delimiter)


def _read_columns(path: str | Path, encoding: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the columns of a file, {} for one that has lines.

    Raises :class:`DataError` if the columns have different rows.
    """
    with open_bytes(path) as stream:
        text = "".join(read_lines(stream, path, encoding))
    try:
        columns = parse_json(text)
    except json.JSONDecodeError:
        return {}
    if "question" not in columns or not all(isinstance(column, dict) for column in columns.values()):
        return {}
    if any(column.keys() != columns["question"].keys() for column in columns.values()):
        raise DataError(f"{path}: the columns have different rows: expected the same rows in each column.")
    # pandas, which wrote it by tuples, calls a column `_1` whose name begins with an underscore.
    return {"_id" if name == "_1" else name: column for name, column in columns.items()}


def read_aliases(path: str) -> Aliases:
    """Read 2WikiMultihopQA's ``id_aliases.json``: from Wikidata id to aliases and demonyms.

    Raises :class:`DataError` for the first record that has none.
    """
    aliases = {}
    for item in read_records(path):
        if isinstance(item, OddRecordError):
            raise item
        if isinstance(item, FileRecord):
            aliases[text_field(item.fields, "Q_id", item.where)] = (
                *texts_field(item.fields, "aliases", item.where),
                *texts_field(item.fields, "demonyms", item.where),
            )
    return aliases


def add_aliases(question: Question, record: Record, aliases: Aliases) -> Question:
    """Add the aliases of the record's ``answer_id`` to the gold answers, as 2Wiki's scorer v1.1 does."""
    names = aliases.get(str(record.get("answer_id")), ())
    return replace(question, answers=distinct(*question.answers, *names))


DATASETS = (
    Dataset(
        "2wikimultihopqa",
        "2WikiMultihopQA, official files (and 'aliases')",
        parse,
        marks=frozenset(("question", "supporting_facts", "evidences")),
        scorer="2wikimultihopqa",
        paragraphs=context_paragraphs,
        read_file=read_file,
        read_aliases=read_aliases,
        add_aliases=add_aliases,
    ),
)
