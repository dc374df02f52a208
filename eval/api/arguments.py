"""What callers from Python give, in the form that the rest of the project uses.

Options are keyword arguments, checked and completed as those of the command line are. Questions may be
objects, which are written to a file: what was answered is known by its content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from corag.core.errors import ConfigError, nearest
from corag.core.json_types import to_json_types
from corag.core.options.classes import change_options
from corag.core.system.files import write_atomically
from corag.core.types import Question
from corag.data.fields import parse_columns
from eval.datasets import DATASETS, Dataset
from eval.datasets.load import parse_questions
from eval.datasets.report import QuestionReport, silence_remarks
from eval.datasets.sets.jsonl import question_record
from eval.scoring.scorers import default_scorer

Options = TypeVar("Options")
Questions = (
    str
    | os.PathLike[str]
    | Sequence[Question]
    | Sequence[Mapping[str, Any]]
    | Sequence[tuple[str, Any]]
    | Any
)
"""A question file; or questions as objects, as records of such a file (a ``datasets.Dataset`` has them), as
(question, answer) pairs or as bare texts."""


def with_keywords(base: Options, options: Mapping[str, Any]) -> Options:
    """Return a configuration with some options changed. Whole sections may be given as objects.

    Raises :class:`ConfigError` for an unknown name, with the nearest, and for a value that cannot be.
    """
    changes = {
        name: value if is_dataclass(value) else to_json_types(value) for name, value in options.items()
    }
    return change_options(base, changes)


def or_default(config: Options | None, kind: type[Options]) -> Options:
    """Return a configuration, the default one for None.

    Raises :class:`ConfigError` for one of another class.
    """
    if config is not None and not isinstance(config, kind):
        name = config.__name__ if isinstance(config, type) else type(config).__name__
        raise ConfigError(f"an object of {kind.__name__} is wanted here, not {name}: {kind.__name__}(...).")
    return kind() if config is None else config


def question_file(questions: Questions, out: Path, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the file that holds the questions, and options that it calls for.

    Questions that came as objects are written beside their runs, so that the folder is whole. They are in our
    own format then, wherever they came from: a dataset that is named says how its records are read, and how
    they are scored.

    Args:
        questions: what the caller gave.
        out: the folder of the runs.
        options: the caller's; dataset, aliases, columns and strict are used.
    """
    if isinstance(questions, str | os.PathLike):
        return os.fspath(questions), {}
    question_list = read_questions(as_sequence(questions), options)
    text = "".join(json.dumps(question_record(each), ensure_ascii=False) + "\n" for each in question_list)
    file = out / "questions.jsonl"
    if file.is_file() and file.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"'{out}' holds runs on other questions: choose another out, or remove it. A run that is to grow "
            "is given all its questions from the start, and a limit."
        )
    write_atomically(file, text)
    silence_remarks(str(file))
    # What the file holds is in order: no names of columns, aliases or missing answers matter to it.
    read_as: dict[str, Any] = {"columns": [], "encoding": "", "delimiter": "", "strict": False, "aliases": ""}
    dataset = options.get("dataset", "")
    return str(file), read_as | (
        {"dataset": "jsonl", "scorer": default_scorer(dataset).name} if dataset else {}
    )


def read_questions(questions: Sequence[Any], options: Mapping[str, Any]) -> list[Question]:
    """Return questions that came as objects; what was left out or guessed is printed.

    ``options``: the caller's, see :func:`question_file`. Raises :class:`ConfigError` for what is no question,
    and :class:`DataError` if none can be read.
    """
    dataset = options.get("dataset", "")
    if dataset and dataset not in DATASETS:
        raise ConfigError(f"unknown dataset '{dataset}': {nearest(dataset, DATASETS)}")
    records = [record_of(each) for each in questions]
    if not records:
        raise ConfigError("no questions were given: the list is empty.")
    reader = _reader_of(records, dataset, options)
    spellings, aliases = {}, options.get("aliases", "")
    if aliases and DATASETS[dataset or "jsonl"].read_aliases is None:
        raise ConfigError(f"the dataset '{dataset or 'jsonl'}' has no file of aliases: leave aliases out.")
    if aliases and reader.read_aliases:
        spellings = dict(reader.read_aliases(os.fspath(aliases)))
    report = QuestionReport("questions", strict=bool(options.get("strict")))
    question_list = parse_questions(
        ((f"question {number}", record) for number, record in enumerate(records, 1)),
        reader,
        report,
        spellings=spellings,
        columns=parse_columns(options.get("columns", ()), reader.columns),
    )
    report.show()
    return question_list


def _reader_of(records: Sequence[Mapping[str, Any]], dataset: str, options: Mapping[str, Any]) -> Dataset:
    """Return the reader of records: the dataset's, unless they are of our own format already."""
    own_format = DATASETS["jsonl"]
    # Questions, pairs and texts are; so are records of its fields, which a dataset's reader would not know.
    in_our_format = all(record.keys() <= set(own_format.columns) for record in records)
    return own_format if in_our_format or options.get("columns") else DATASETS[dataset or "jsonl"]


def as_sequence(questions: Any) -> Sequence[Any]:
    """Return questions as a list. Raises :class:`ConfigError` for what is none, as a data frame is."""
    is_table = isinstance(questions, Mapping) or hasattr(questions, "columns")  # which yields columns' names
    if is_table or not isinstance(questions, Iterable):
        raise ConfigError(
            f"{_NO_QUESTION.format(f'one {type(questions).__name__}')}, in a list. A data frame has records: "
            'frame.to_dict("records").'
        )
    return list(questions)


_NO_QUESTION = (
    "{} is no question: give Question objects, records such as "
    '{{"question": "...", "answers": ["..."]}}, pairs of a question and its answer, or texts'
)


def record_of(question: Question | Mapping[str, Any] | tuple[str, Any] | str) -> dict[str, Any]:
    """Return a question as a record of our own format, or nearly so."""
    match question:
        case Question():
            return question_record(question)
        case str():
            return {"question": question}
        case (str() as text, answers):
            return {"question": text, "answers": answers}
        case Mapping():
            return {str(name): _plain(value) for name, value in question.items()}
    raise ConfigError(f"{_NO_QUESTION.format(repr(question)[:60])}.")


def _plain(value: Any) -> Any:
    """Return a value without numpy's arrays and numbers, in which frames hold lists, at any depth."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def one_question(question: Question | str) -> Question:
    """Return what ``ask`` was given as a question. Raises :class:`ConfigError` for many, or what is none."""
    if isinstance(question, str):
        return Question("asked", question)
    if isinstance(question, Question):
        return question
    raise ConfigError(
        f"ask takes one question, a text or a Question, but was given a {type(question).__name__}: run takes "
        "many, as in run(questions, methods, model, index, out=FOLDER)."
    )
