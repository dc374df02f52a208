"""BEIR's folders: ``queries.jsonl``, ``corpus.jsonl`` and judgements in ``qrels/NAME.tsv``."""

from __future__ import annotations

from pathlib import Path

from corag.core.errors import DataError
from corag.core.types import Question
from corag.data.fields import (
    Record,
    distinct,
    gold_answer,
    name_record,
    object_field,
    record_id,
    require_id,
    text_field,
    texts_field,
)
from corag.data.packed import open_bytes
from corag.data.text import read_lines
from eval.datasets.dataset import CorpusFormat, Dataset
from eval.datasets.records import PlacedRecords, read_file_records
from eval.datasets.report import QuestionReport
from eval.datasets.trec import judgement_lines
from retrieval.corpora.passages import read_passages


def parse(record: Record, where: str) -> Question:
    """Make a question of what :func:`read_queries` yields.

    BEIR has no place for answers; they are taken from the query's metadata if it has ``answers`` or
    ``answer``, as some conversions do. Otherwise only recall can be measured.
    """
    record_name = name_record(record, where)
    metadata = object_field(record, "metadata", record_name)
    return Question(
        id=require_id(record, where),
        text=text_field(record, "text", where),
        answers=distinct(*gold_answer(metadata, record_name), *texts_field(metadata, "answers", record_name)),
        supporting=distinct(*record["judged"]),
    )


def read_queries(qrels: str, report: QuestionReport) -> PlacedRecords:
    """Stream the queries of a file of judgements, in its order, each with the ids ``judged`` relevant.

    Relevant is a score above 0. What is left out is counted in ``report``: lines that are no judgements, and
    queries that are judged but not there. Raises :class:`DataError` if :func:`find_queries` does.
    """
    file = find_queries(qrels)
    judgements = _read_qrels(qrels, report)
    queries: dict[str, Record] = {}
    for where, record in _read_query_file(str(file), report):
        if record_id(record) in judgements:
            queries.setdefault(record_id(record), record)
        elif not record_id(record):
            report.drop(where, "the query has no id, by which it could be judged")
    for identity, (where, passages) in judgements.items():
        if identity in queries:
            yield where, {**queries[identity], "judged": passages}
        else:
            report.drop(where, f"judges passages for a query that {file.name} does not have")


def find_queries(qrels: str) -> Path:
    """Return the queries of a file of judgements: beside its folder, as BEIR has it, or beside it.

    Raises :class:`DataError` if they are in neither place.
    """
    folders = Path(qrels).parent.parent, Path(qrels).parent
    candidates = [
        folder / f"queries.{suffix}" for suffix in ("jsonl", "jsonl.gz", "json", "tsv") for folder in folders
    ]
    file = next((path for path in candidates if path.is_file()), None)
    if file is None:
        raise DataError(
            f"there is no queries.jsonl for '{qrels}': expected '{candidates[0]}' or '{candidates[1]}'. In "
            "BEIR's layout name the judgements as the question file, such as nq/qrels/test.tsv."
        )
    return file


def _read_query_file(file: str, report: QuestionReport) -> PlacedRecords:
    """Stream queries. A table of them, as MS MARCO's, is lines of id, tab, text, with a header or without."""
    if not file.endswith(".tsv"):
        yield from read_file_records(file, report)
        return
    with open_bytes(file) as stream:
        for number, line in enumerate(read_lines(stream, file, report.encoding), 1):
            identity, _, text = line.partition("\t")
            if line.strip():
                yield f"{file}, line {number}", {"_id": identity.strip(), "text": text.strip()}


def _read_qrels(path: str, report: QuestionReport) -> dict[str, tuple[str, list[str]]]:
    """Return by query the place of its first line and the passages that are relevant to it."""
    judgements: dict[str, tuple[str, list[str]]] = {}
    for where, query, passage, grade in judgement_lines(path, report.drop):
        if grade > 1 and not report.strict:  # nothing is wrong with the file
            report.remark(where, "grades above 1 count as 1, in measures of rankings too")
        gold = judgements.setdefault(query, (where, []))[1]
        if grade > 0:
            gold.append(passage)
    return judgements


DATASETS = (
    Dataset(
        "beir",
        "BEIR's folders: name the judgements, such as nq/qrels/test.tsv",
        parse,
        read_records=read_queries,
        question="",
        # The question file has the judgements only.
        source_files=lambda qrels: (find_queries(qrels),),
    ),
)
CORPUS_FORMATS = (CorpusFormat("beir", read_passages),)
