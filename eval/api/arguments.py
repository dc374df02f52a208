"""What callers from Python give, in the form that the rest of the project uses.

Options are keyword arguments, checked and completed as those of the command line are. Questions may be
objects, which are written to a file: what was answered is known by its content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from corag.core.errors import ConfigError, nearest
from corag.core.files import write_atomically
from corag.core.json_types import to_json_types
from corag.core.options import changed
from corag.core.types import Question
from eval.datasets import DATASETS
from eval.datasets.load import parse_columns, parse_questions
from eval.datasets.records import list_records
from eval.datasets.report import QuestionReport
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
"""A question file; or questions as objects, as records of such a file, as (question, answer) pairs or as bare
texts; or a table of them, such as a data frame."""


def with_keywords(base: Options, options: Mapping[str, Any]) -> Options:
    """Return a configuration with some options changed. Whole sections may be given as objects.

    Raises :class:`ConfigError` for an unknown name, with the nearest, and for a value that cannot be.
    """
    changes = {
        name: value if is_dataclass(value) else to_json_types(value) for name, value in options.items()
    }
    try:
        return changed(base, changes)
    except ConfigError as error:
        # In Python an option is called without the dashes of a shell.
        raise ConfigError(str(error).replace("option '--", "option '")) from None


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
    own format then, wherever they came from: a dataset that is named says how they are scored.

    Args:
        questions: what the caller gave.
        out: the folder of the runs.
        options: the caller's; dataset, columns and strict are used.
    """
    if isinstance(questions, str | os.PathLike):
        return os.fspath(questions), {}
    dataset, reader = options.get("dataset", ""), DATASETS["jsonl"]
    if dataset and dataset not in DATASETS:
        raise ConfigError(f"unknown dataset '{dataset}': {nearest(dataset, DATASETS)}")
    records = [record_of(each) for each in _as_sequence(questions)]
    if not records:
        raise ConfigError("no questions were given: the list is empty.")
    report = QuestionReport("questions", strict=bool(options.get("strict")))
    parsed = parse_questions(
        ((f"question {number}", record) for number, record in enumerate(records, 1)),
        reader,
        report,
        columns=parse_columns(options.get("columns", ()), reader),
    )
    report.show()
    text = "".join(json.dumps(question_record(each), ensure_ascii=False) + "\n" for each in parsed)
    file = out / "questions.jsonl"
    if file.is_file() and file.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"'{out}' holds runs on other questions: choose another out, or remove it. A run that is to grow "
            "is given all its questions from the start, and a limit."
        )
    write_atomically(file, text)
    # What the file holds is in order: neither names of columns nor missing answers matter to it.
    read_as = {"columns": [], "strict": False}
    return str(file), read_as | (
        {"dataset": "jsonl", "scorer": default_scorer(dataset).name} if dataset else {}
    )


def _as_sequence(questions: Any) -> Sequence[Any]:
    """Return the questions of a list, or of a table: a data frame, or one of Hugging Face's."""
    if hasattr(questions, "to_dict") and not isinstance(questions, Mapping):
        to_records = questions.to_dict
        return to_records("records") if hasattr(questions, "iloc") else list(questions)
    if isinstance(questions, Mapping):
        return list_records(dict(questions), "the questions")
    return list(questions)


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
            return dict(question)
    raise ConfigError(
        f"{question!r:.60} is no question: give Question objects, records such as "
        '{"question": "...", "answers": ["..."]}, or pairs of a question and its answer.'
    )
