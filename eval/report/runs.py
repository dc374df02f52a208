"""Finished runs as a report reads them: light rows for figures, whole rows one by one for traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from core.records import read_lines, read_manifest
from eval.table import Record


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk.

    ``corpus``: what its index was built from, "" if that is not known. ``start``: the circumstances of its last start.
    ``rows``: by question id, without candidate chains and with no more of a step than its kind, so that many runs fit into memory.
    """

    name: str
    folder: Path
    corpus: str
    settings: Mapping[str, Any]
    start: Mapping[str, Any]
    rows: Mapping[str, Record]

    @property
    def searches(self) -> bool:
        """Whether the run's method searches at all."""
        return bool(self.settings["retriever"])


class WholeRows(Mapping[str, Record]):
    """The rows of a run by question id, each parsed when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._lines = read_lines(folder)

    def __getitem__(self, question: str) -> Record:
        record: Record = orjson.loads(self._lines[question].text)
        return record

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def load_run(name: str, folder: Path, corpus: str = "") -> Run:
    """Read a run. Raises :class:`core.errors.DataError` if the folder is not one."""
    manifest = read_manifest(folder)
    rows = {question: _light(row) for question, row in WholeRows(folder).items()}
    return Run(name, folder, corpus, manifest["settings"], manifest["starts"][-1], rows)


def common_questions(runs: Sequence[Run]) -> list[str]:
    """Return the ids of the questions that every run has answered or failed at, in the order of the first run."""
    first, *others = runs
    return [question for question in first.rows if all(question in other.rows for other in others)]


def _light(record: Record) -> Record:
    answer = record["answer"]
    return {
        **record,
        "answer": None if answer is None else {name: value for name, value in answer.items() if name != "chains"},
        "steps": [_step(step["kind"]) for step in record["steps"]],
    }


@cache
def _step(kind: str) -> Mapping[str, str]:
    """Return what is kept of a step; steps of a kind share it, since there are very many."""
    return {"kind": kind}
