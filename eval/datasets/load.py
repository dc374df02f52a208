"""Reading questions from official files, from Hugging Face and from files of one's own.

Which dataset a source is, the caller says; it is never guessed from a name.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, DataError, reason
from corag.core.seeds import stable_hash
from corag.core.system.installation import require
from corag.core.types import Question
from corag.data.fields import (
    ColumnCheck,
    Columns,
    Record,
    as_text,
    find_field,
    parse_columns,
    record_id,
    rename,
)
from eval.datasets.dataset import Aliases, Dataset
from eval.datasets.records import PlacedRecords, read_file_records
from eval.datasets.registry import find_dataset, recognise
from eval.datasets.report import QuestionReport


def load_questions(
    source: str | Path,
    dataset: str = "jsonl",
    split: str = "",
    limit: int = 0,
    *,
    subset: str = "",
    aliases: str = "",
    columns: Sequence[str] = (),
    encoding: str = "",
    delimiter: str = "",
    strict: bool = False,
    report: QuestionReport | None = None,
) -> list[Question]:
    """Read the questions of a file, or of a Hugging Face dataset if ``split`` is given.

    A record that cannot be read is left out. How many are, why, and what was guessed in others is printed on
    standard error, or kept in ``report``.

    Args:
        source: a file (.jsonl, .json, .csv, .tsv, .txt, each optionally compressed; .parquet), a folder of
            ``save_to_disk``, or a name such as "hotpotqa/hotpot_qa". For "beir", a file of judgements.
        dataset: one of ``DATASETS``; "jsonl" is our own format, see :mod:`eval.datasets.sets.jsonl`.
        split: the split of a Hugging Face dataset, such as "validation".
        limit: take the first so many questions; 0 takes all.
        subset: the configuration of a Hugging Face dataset, such as "distractor".
        aliases: 2WikiMultihopQA's ``id_aliases.json``. Without it the official scorer's figures are lower.
        columns: what the fields of our own format are called here, such as ``["question=prompt"]``.
        encoding: of text that is not UTF-8; "" to find it out.
        delimiter: between the cells of a table; "" for that of its ending.
        strict: refuse the source for the first record that is not exactly of the dataset's format.
        report: what to count into, instead of printing.

    Raises:
        ConfigError: for an unknown dataset or options that do not go together.
        DataError: for a source of which no question can be read; if ``strict``, naming the first record and
            field that is wrong.
    """
    source = str(source)
    # Options are checked before a file of many megabytes is read.
    reader = find_dataset(dataset)
    if columns and not reader.columns:
        raise ConfigError(
            f"columns name the fields of a file of your own, but the dataset is {dataset}: leave them out, "
            "or choose the dataset jsonl, and a scorer."
        )
    names = parse_columns(columns, reader.columns)
    if limit < 0:
        raise ConfigError(f"the limit on questions is {limit}: give 0 for all, or a positive number.")
    if aliases and reader.read_aliases is None:
        raise ConfigError(
            f"an aliases file belongs to 2wikimultihopqa, but the dataset is {dataset}: leave it out."
        )
    if subset and not split:
        raise ConfigError(
            f"subset '{subset}' belongs to a Hugging Face dataset: give its split too, such as 'validation'."
        )
    spellings = reader.read_aliases(aliases) if aliases and reader.read_aliases else {}
    counts = QuestionReport(source) if report is None else report
    counts.strict, counts.encoding, counts.delimiter = strict, encoding, delimiter
    records = _placed_records(source, reader, split, subset, counts)
    questions = parse_questions(records, reader, counts, limit=limit, spellings=spellings, columns=names)
    if report is None:
        counts.show()
    return questions


def read_question_records(source: str, dataset: str, split: str = "", subset: str = "") -> Iterator[Record]:
    """Stream the records of a question file, or of a Hugging Face dataset if ``split`` is given.

    A missing id is made, as it was for their questions. Records that are no question are left out, and all
    but the first of an id, as official scripts read one record by its id.
    """
    reader, report = find_dataset(dataset), QuestionReport(source)
    names = set[str]()
    for where, record in _placed_records(source, reader, split, subset, report):
        values = _with_id(record, reader)
        with contextlib.suppress(DataError):
            name = reader.parse(values, where).id
            if name not in names:
                names.add(name)
                yield values


def parse_questions(
    records: PlacedRecords | Iterable[tuple[str, Record]],
    dataset: Dataset,
    report: QuestionReport,
    *,
    limit: int = 0,
    spellings: Aliases | None = None,
    columns: Columns | None = None,
) -> list[Question]:
    """Return the questions of raw records, counting each that is kept or left out into ``report``.

    Args:
        records: each after the words that name its place.
        dataset: whose layout they have.
        report: also says whether reading is strict.
        limit: of questions; 0 takes all.
        spellings: further ones of answers.
        columns: the records' names of fields, by ours.

    Raises:
        DataError: if there is no question; if strict, for the first record that is wrong.
        ConfigError: for a name in ``columns`` that no record has.
    """
    questions: dict[str, Question] = {}
    locations: dict[str, str] = {}
    check = ColumnCheck(columns or {})
    outer = {column.partition(".")[0] for column in (columns or {}).values()}  # of fields within others
    for where, record in records:
        check.add(record)
        renamed = rename(record, columns or {})
        try:
            values = _with_id(renamed, dataset)
            question = dataset.parse(values, where)
            if spellings and dataset.add_aliases:
                question = dataset.add_aliases(question, values, spellings)
            question = _with_own_id(question, where, questions, locations, report)
        except DataError as error:
            official = recognise(record) if dataset.note_record else ""
            reason = f"this is the format of {official}: add dataset={official}" if official else ""
            report.drop(where, reason or _without_place(str(error), where))
            continue
        questions[question.id], locations[question.id] = question, where
        report.question_count += 1
        if dataset.note_record:
            official = recognise(values)
            notes = [f"this is the format of {official}: add dataset={official}"] if official else []
            for text in notes or dataset.note_record(
                {each: values[each] for each in values if each not in outer}
            ):
                report.remark(where, text)
        if dataset.question and not record_id(renamed):  # others read no id
            report.remark(where, "no id: one is made of the question's text")
        # Judgements of passages come without answers by their nature; all others are noted.
        if not question.answers and (dataset.gold or not question.supporting):
            report.note_unscored(where, dataset.gold)
        if report.question_count == limit:
            break
    check.finish()
    if not questions:
        why = "\n".join(report.lines())
        raise DataError(
            f"no question could be read. {why}"
            if why
            else f"{report.source} holds no questions: check that the file is complete."
        )
    return list(questions.values())


def _with_id(record: Record, dataset: Dataset) -> Record:
    """Return a record with an id: that of its question's text where it has none."""
    name = find_field(record, dataset.question) if dataset.question else ""
    with contextlib.suppress(ValueError):  # of a question that is no text
        if name and not record_id(record) and (text := as_text(record[name])):
            return {**record, "id": stable_hash(text)}
    return record


def _with_own_id(
    question: Question,
    where: str,
    questions: Mapping[str, Question],
    locations: Mapping[str, str],
    report: QuestionReport,
) -> Question:
    """Return a question with an id that no other has: seeds and rows go by it.

    Raises :class:`DataError` for a question that is there already; if strict, for any id that is.
    """
    earlier = questions.get(question.id)
    if earlier is None:
        return question
    earlier_location = locations[question.id].removeprefix(f"{report.source}, ")
    if report.strict:
        raise DataError(
            f"{where}: the id '{question.id}' was used before, at {earlier_location}; every question needs "
            "an id of its own."
        )
    number = 1
    while earlier is not None:
        if replace(question, id=earlier.id) == earlier:
            raise DataError(f"{where}: a repeat of an earlier question of the same id")
        number += 1
        earlier = questions.get(f"{question.id}#{number}")
    report.remark(
        f"{where} and {earlier_location}",
        f"an id was used before by another question: '#{number}' is added to it",
    )
    return replace(question, id=f"{question.id}#{number}")


def _without_place(message: str, where: str) -> str:
    """Return an error's message without the words that name the record, for counting equal ones."""
    if not message.startswith(where):
        return message
    return re.sub(r" \(id .*?\)(?=[,:])", "", message[len(where) :], count=1).lstrip(",: ")


def _placed_records(
    source: str, dataset: Dataset, split: str, subset: str, report: QuestionReport
) -> PlacedRecords:
    if split:
        return _hub_records(source, subset, split)
    if dataset.read_records:
        return dataset.read_records(source, report)
    return read_file_records(source, report, dataset.read_file)


def _hub_records(name: str, subset: str, split: str) -> PlacedRecords:
    require(f"'{name}' with a split, a dataset of Hugging Face's,", "datasets")
    from datasets import load_dataset  # slow to import

    try:
        table: Any = load_dataset(name, subset or None, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"cannot load the Hugging Face dataset '{name}' (subset '{subset or 'default'}', split "
            f"'{split}'): {reason(error).rstrip('.')}. It is downloaded once and then kept; without a "
            "network, give a file and no split."
        ) from error
    return ((f"{name}, record {number}", record) for number, record in enumerate(table, 1))
