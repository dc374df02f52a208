"""Reading questions from official files, from Hugging Face and from plain JSONL.

Which dataset a source is, is said by the caller and never guessed from a name. A new dataset is a function
from a raw record to a :class:`Question`, and a line in ``_READERS``.
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError, nearest, reason
from core.files import open_text, read_records
from core.types import Question
from eval.datasets import official, plain, single_hop
from eval.datasets.fields import Record
from eval.datasets.kilt import KILT_TASKS, kilt

Parser = Callable[[Record, str], Question]

# What makes a question of a raw record, and what the dataset's files are.
_READERS: dict[str, tuple[Parser, str]] = {
    "jsonl": (plain.parse_question, "our own format, one question per line"),
    "hotpotqa": (official.hotpotqa, "HotpotQA, official files"),
    "2wikimultihopqa": (official.two_wiki, "2WikiMultihopQA, official files (and --aliases)"),
    "musique": (official.musique, "MuSiQue-Answerable, official files"),
    "bamboogle": (official.bamboogle, "Bamboogle, official table"),
    "popqa": (official.popqa, "PopQA, official table"),
    "flashrag": (single_hop.flashrag, "FlashRAG's files: Natural Questions, TriviaQA, PopQA and others"),
    "beir": (single_hop.beir, "BEIR's folders: name the judgements, such as nq/qrels/test.tsv"),
    **{name: (kilt, task.title) for name, task in KILT_TASKS.items()},
}
_PARSERS = {name: parser for name, (parser, _) in _READERS.items()}

DATASETS = {name: title for name, (_, title) in _READERS.items()}
"""What each dataset's files are, by the name that --dataset takes."""


def load_questions(
    source: str | Path,
    dataset: str = "jsonl",
    split: str = "",
    limit: int = 0,
    *,
    subset: str = "",
    aliases: str = "",
) -> list[Question]:
    """Read the questions of a file, or of a Hugging Face dataset if ``split`` is given.

    Args:
        source: a file (.json, .jsonl, .csv, .tsv; optionally .gz), or a name such as "hotpotqa/hotpot_qa".
            For "beir", a file of judgements (qrels).
        dataset: one of ``DATASETS``; "jsonl" is our own format, see :mod:`eval.datasets.plain`.
        split: the split of a Hugging Face dataset, such as "validation".
        limit: take the first so many questions; 0 takes all.
        subset: the configuration of a Hugging Face dataset, such as "distractor".
        aliases: 2WikiMultihopQA's ``id_aliases.json``. Without it the official scorer's figures are lower.

    Raises:
        ConfigError: for an unknown dataset or options that do not go together.
        DataError: naming source, record and field, for a source that cannot be read as this dataset.
    """
    source = str(source)
    # What does not go together is said before a file of many megabytes is read.
    if dataset not in _PARSERS:
        raise ConfigError(f"there is no dataset '{dataset}': {nearest(dataset, DATASETS)}")
    if limit < 0:
        raise ConfigError(f"the limit on questions is {limit}: give 0 for all, or a positive number.")
    if aliases and dataset != "2wikimultihopqa":
        raise ConfigError(
            f"an aliases file belongs to 2wikimultihopqa, but the dataset is {dataset}: leave it out."
        )
    if subset and not split:
        raise ConfigError(
            f"subset '{subset}' belongs to a Hugging Face dataset: give its split too, such as 'validation'."
        )
    known_aliases = official.read_aliases(aliases) if aliases else None
    records = read_question_records(source, dataset, split, subset)
    questions: dict[str, Question] = {}
    for number, record in enumerate(itertools.islice(records, limit or None), 1):
        where = f"{source}, record {number}"
        question = _PARSERS[dataset](record, where)
        if question.id in questions:  # seeds and rows go by the id: two of one id would be one question
            raise DataError(
                f"{where}: the id '{question.id}' was used before; every question needs an id of its own."
            )
        questions[question.id] = (
            official.with_aliases(question, record, known_aliases) if known_aliases else question
        )
    if not questions:
        raise DataError(f"{source} holds no questions: check that the file is complete.")
    return list(questions.values())


def read_question_records(source: str, dataset: str, split: str = "", subset: str = "") -> Iterator[Record]:
    """Stream the raw records of a question file, or of a Hugging Face dataset if ``split`` is given."""
    if split:
        return _hub_records(source, subset, split)
    return single_hop.beir_records(source) if dataset == "beir" else _file_records(source)


def _file_records(source: str) -> Iterator[Record]:
    if not Path(source).is_file():
        raise DataError(
            f"there is no file '{source}': check the path, or give a split to read a Hugging Face dataset."
        )
    suffix = Path(source.removesuffix(".gz")).suffix
    return (
        _table_records(source, "\t" if suffix == ".tsv" else ",")
        if suffix in (".csv", ".tsv")
        else read_records(source)
    )


def _table_records(source: str, delimiter: str) -> Iterator[Record]:
    csv.field_size_limit(sys.maxsize)  # a cell may hold all paragraphs of a question; csv allows 128 KB
    with open_text(source) as stream:
        for number, row in enumerate(csv.DictReader(stream, delimiter=delimiter), 1):
            if None in row or None in row.values():
                raise DataError(
                    f"{source}, record {number}: the row does not have as many cells as the header has names."
                )
            yield row


def _hub_records(name: str, subset: str, split: str) -> Iterator[Record]:
    from datasets import load_dataset  # slow to import

    try:
        table: Any = load_dataset(name, subset or None, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"cannot load the Hugging Face dataset '{name}' (subset '{subset or 'default'}', split "
            f"'{split}'): {reason(error).rstrip('.')}. It is downloaded once and then kept; without a "
            "network, give a file and no split."
        ) from error
    return iter(table)
