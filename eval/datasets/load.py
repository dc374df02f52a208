"""Reading questions from official files, from Hugging Face and from files of one's own.

Which dataset a source is, the caller says; it is never guessed from a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, DataError, nearest, reason
from corag.core.installation import require
from corag.core.seeds import stable_hash
from corag.core.types import Question
from eval.datasets.dataset import Aliases, Dataset
from eval.datasets.fields import Record, flat_texts, record_id, scalar_text
from eval.datasets.records import PlacedRecords
from eval.datasets.registry import find_dataset, recognise
from eval.datasets.report import QuestionReport

NO_GOLD = "no gold answer: answered, but not scored"
"""The remark on a question that is not scored."""

Remark = Callable[[str], None]
"""Takes a sentence on what was guessed, made or passed over in a record."""


def load_questions(
    source: str | Path,
    dataset: str = "jsonl",
    split: str = "",
    limit: int = 0,
    *,
    subset: str = "",
    aliases: str = "",
    columns: Sequence[str] = (),
    strict: bool = False,
    report: QuestionReport | None = None,
) -> list[Question]:
    """Read the questions of a file, or of a Hugging Face dataset if ``split`` is given.

    A record that cannot be read is left out. How many are, why, and what was guessed in others is printed on
    standard error, or kept in ``report``.

    Args:
        source: a file (.json, .jsonl, .csv, .tsv, .txt, each optionally compressed; .xlsx, .parquet), a
            folder of ``save_to_disk``, or a name such as "hotpotqa/hotpot_qa". For "beir", a file of
            judgements (qrels).
        dataset: one of ``DATASETS``; "jsonl" is our own format, see :mod:`eval.datasets.sets.jsonl`.
        split: the split of a Hugging Face dataset, such as "validation".
        limit: take the first so many questions; 0 takes all.
        subset: the configuration of a Hugging Face dataset, such as "distractor".
        aliases: 2WikiMultihopQA's ``id_aliases.json``. Without it the official scorer's figures are lower.
        columns: what the fields of our own format are called here, such as ``["question=prompt"]``.
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
    names = parse_columns(columns, reader)
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
    counts.strict = strict
    records = _placed_records(source, reader, split, subset, counts)
    questions = parse_questions(records, reader, counts, limit=limit, spellings=spellings, columns=names)
    if report is None:
        counts.show()
    return questions


def read_question_records(source: str, dataset: str, split: str = "", subset: str = "") -> Iterator[Record]:
    """Stream the records of a question file, or of a Hugging Face dataset if ``split`` is given.

    They are as their questions were made of them: a missing id is made, a number is a text.
    """
    reader, report = find_dataset(dataset), QuestionReport(source)
    for _, record in _placed_records(source, reader, split, subset, report):
        yield normalise(record, reader, lambda _: None)


def parse_questions(
    records: PlacedRecords | Iterable[tuple[str, Record]],
    dataset: Dataset,
    report: QuestionReport,
    *,
    limit: int = 0,
    spellings: Aliases | None = None,
    columns: Mapping[str, str] | None = None,
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
    unseen, names = dict(columns or {}), set[str]()
    # Records with these fields are not tried as they are: to say what is wrong with each takes long.
    odd_layouts: set[tuple[Any, ...]] = set()
    for where, record in records:
        names.update(map(str, record))
        unseen = {name: column for name, column in unseen.items() if column not in record}
        remarks: list[str] = []  # which are those of a record that is kept
        try:
            values = _rename(record, columns or {})
            fields = tuple(values)
            question = None
            if not report.strict and fields not in odd_layouts:
                question = _parse_plain(values, where, dataset)
            if question is None:
                odd_layouts.add(fields)
                values = values if report.strict else normalise(values, dataset, remarks.append)
                question = _parse_what_can_be(values, where, dataset, remarks.append, strict=report.strict)
            if spellings and dataset.add_aliases:
                question = dataset.add_aliases(question, values, spellings)
            # Judgements of passages come without answers by their nature; all others are told.
            if not question.answers and (dataset.gold or not question.supporting):
                _note_missing_answers(where, dataset, remarks.append, strict=report.strict)
            question = _with_own_id(question, where, questions, locations, report)
        except DataError as error:
            if report.strict:
                raise
            report.drop(where, _without_place(str(error), where))
            continue
        questions[question.id], locations[question.id] = question, where
        report.question_count += 1
        for text in remarks:
            report.remark(where, text)
        if report.question_count == limit:
            break
    if unseen and names:
        column = next(iter(unseen.values()))
        raise ConfigError(f"columns names '{column}', which no record has: {nearest(column, names)}")
    if not questions:
        why = "\n".join(report.lines())
        raise DataError(
            f"no question could be read. {why}"
            if why
            else f"{report.source} holds no questions: check that the file is complete."
        )
    return list(questions.values())


def normalise(record: Record, dataset: Dataset, remark: Remark) -> Record:
    """Return a record with what files get wrong put right: names, numbers for texts, a missing id.

    ``remark`` is called with each change. Raises :class:`DataError` for a record without a question.
    """
    values = {str(name): value for name, value in record.items()}
    if dataset.canonical is not None:
        if official := recognise(values):
            remark(f"this is the format of {official}: add dataset={official}")
        values = dict(dataset.canonical(values, remark))
    else:
        for name, value in values.items():
            if name.lower() in dataset.texts and scalar_text(value) and not isinstance(value, str):
                values[name] = scalar_text(value)
                remark(f"field '{name}' is no text, but is read as one")
            elif name in dataset.lists and not _is_list(value) and flat_texts(value):
                values[name] = flat_texts(value)
                remark(f"field '{name}' is no list of texts, but is read as one")
    text = scalar_text(values.get(dataset.question)) if dataset.question else ""
    if text and not record_id(values):
        values["id"] = stable_hash(text)
        remark("no id: one is made of the question's text")
    return values


def _rename(record: Record, columns: Mapping[str, str]) -> Record:
    """Return a record whose fields are called as ours are."""
    if not columns:
        return record
    rest = {name: value for name, value in record.items() if name not in columns.values()}
    return rest | {name: record[column] for name, column in columns.items() if column in record}


def _is_list(value: object) -> bool:
    """Whether a list of texts is one, or a text that a table holds for one."""
    if isinstance(value, str):
        return value.lstrip()[:1] == "["
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def parse_columns(columns: Sequence[str], dataset: Dataset) -> dict[str, str]:
    """Return the names of a file's fields by ours, of texts such as "question=prompt".

    Raises :class:`ConfigError` for another text, an unknown field, or a dataset whose fields have names.
    """
    if columns and not dataset.columns:
        raise ConfigError(
            f"columns name the fields of a file of your own, but the dataset is {dataset.name}: leave "
            "them out, or choose the dataset jsonl, and a scorer."
        )
    names = {}
    for each in columns:
        name, equals, column = (part.strip() for part in each.partition("="))
        if not (equals and column):
            raise ConfigError(
                f"columns are pairs such as 'question=prompt,answers=gold', but one is '{each}'."
            )
        if name not in dataset.columns:
            raise ConfigError(f"columns: a question has no field '{name}': {nearest(name, dataset.columns)}")
        names[name] = column
    return names


def _note_missing_answers(where: str, dataset: Dataset, remark: Remark, *, strict: bool) -> None:
    if strict and dataset.gold:
        raise DataError(
            f"{where}: field '{dataset.gold}' is missing or empty: give at least one gold answer."
        )
    remark(NO_GOLD)


def _parse_plain(record: Record, where: str, dataset: Dataset) -> Question | None:
    """Return the question of a record that is just as its format says; None for others.

    Nearly all are, and putting names and types right costs ten times as much.
    """
    try:
        question = dataset.parse(record, where)
    except DataError:
        return None
    return question if question.answers else None


def _parse_what_can_be(
    record: Record, where: str, dataset: Dataset, remark: Remark, *, strict: bool
) -> Question:
    """Return a record's question, if need be without those of the optional fields that are broken."""
    try:
        return dataset.parse(record, where)
    except DataError as error:
        if strict:
            raise
        present = [name for name in dataset.optional if record.get(name) is not None]
        for names in [*([name] for name in present), present]:
            rest = {name: value for name, value in record.items() if name not in names}
            try:
                question = dataset.parse(rest, where)
            except DataError:
                continue
            remark(f"{' and '.join(names)} left out: {_without_place(str(error), where)}")
            return question
        raise


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
    if question == earlier:
        raise DataError(f"{where}: a repeat of an earlier question of the same id")
    number = next(n for n in range(2, len(questions) + 3) if f"{question.id}#{n}" not in questions)
    report.remark(
        f"{where} and {earlier_location}",
        f"an id was used before by another question: '#{number}' is added to it",
    )
    return replace(question, id=f"{question.id}#{number}")


def _without_place(message: str, where: str) -> str:
    """Return an error's message without the words that name the record, for counting equal ones."""
    if not message.startswith(where):
        return message
    return message[len(where) :].partition(": ")[2] or message


def _placed_records(
    source: str, dataset: Dataset, split: str, subset: str, report: QuestionReport
) -> PlacedRecords:
    return _hub_records(source, subset, split) if split else dataset.read_records(source, report)


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
