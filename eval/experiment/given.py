"""What callers from Python give, as the rest of the house has it.

Options are keyword arguments, checked and completed as those of the command line are. Questions may be
objects, which are written to a file: what was answered is known by its content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from core.errors import ConfigError, nearest
from core.files import write_atomically
from core.options import changed
from core.types import Question
from eval.datasets import DATASETS
from eval.datasets.plain import parse_question, question_record
from eval.scoring.scorers import default_scorer

Options = TypeVar("Options")
Questions = str | os.PathLike[str] | Sequence[Question] | Sequence[Mapping[str, Any]]
"""A question file, or questions as objects or as records of such a file."""


def with_keywords(base: Options, given: Mapping[str, Any]) -> Options:
    """Return a configuration with some options changed. Whole sections may be given as objects.

    Raises :class:`ConfigError` for an unknown name, with the nearest, and for a value that cannot be.
    """
    known = [each.name for each in fields(cast("Any", base))]
    sections = {name: value for name, value in given.items() if is_dataclass(value)}
    if unknown := [name for name in sections if name not in known]:
        raise ConfigError(f"unknown option '{unknown[0]}': {nearest(unknown[0], known)}")
    others = {name: plain(value) for name, value in given.items() if name not in sections}
    changed_base: Options = replace(cast("Any", base), **sections)
    if not others:
        return changed_base
    try:
        return changed(changed_base, others)
    except ConfigError as error:
        # In Python an option is called without the dashes of a shell.
        raise ConfigError(str(error).replace("option '--", "option '")) from None


def or_default(config: Options | None, kind: type[Options]) -> Options:
    """Return a configuration, the default one for None.

    Raises :class:`ConfigError` for one of another class.
    """
    if config is not None and not isinstance(config, kind):
        given = config.__name__ if isinstance(config, type) else type(config).__name__
        raise ConfigError(f"an object of {kind.__name__} is wanted here, not {given}: {kind.__name__}(...).")
    return kind() if config is None else config


def plain(value: Any) -> Any:
    """Write paths as texts, also inside lists and mappings."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def question_file(questions: Questions, out: Path, dataset: str) -> tuple[str, dict[str, str]]:
    """Return the file that holds the questions, and options that it calls for.

    Questions that came as objects are written beside their runs, so that the folder is whole. They are in our
    own format then, wherever they came from: a dataset that is named says how they are scored.
    """
    if isinstance(questions, str | os.PathLike):
        return os.fspath(questions), {}
    records = [record_of(each) for each in questions]
    if not records:
        raise ConfigError("no questions were given: the list is empty.")
    for number, record in enumerate(records, 1):
        parse_question(record, f"question {number}")
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    file = out / "questions.jsonl"
    if file.is_file() and file.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"'{out}' holds runs on other questions: choose another out, or remove it. A run that is to grow "
            "is given all its questions from the start, and a limit."
        )
    write_atomically(file, text)
    if dataset and dataset not in DATASETS:
        raise ConfigError(f"unknown dataset '{dataset}': {nearest(dataset, DATASETS)}")
    return str(file), {"dataset": "jsonl", "scorer": default_scorer(dataset).name} if dataset else {}


def record_of(question: Question | Mapping[str, Any]) -> dict[str, Any]:
    """Return a question as a record of our own format."""
    if isinstance(cast("object", question), str):
        raise ConfigError(
            f"'{question:.60}' is a question without gold answers, by which a run is scored: give records "
            'such as {"id": "1", "question": "...", "answers": ["..."]}, or ask it by itself with ask().'
        )
    return question_record(question) if isinstance(question, Question) else dict(question)
