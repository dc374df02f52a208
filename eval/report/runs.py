"""Finished runs as a report reads them: light rows for figures; whole rows are read one by one for traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.manifest import Manifest
from core.records import read_attempts
from core.rows import SavedRow


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk.

    ``corpus``: what its index was built from, "" if that is not known. ``rows``: by question id, without steps and what its method
    adds to answers, so that many runs fit into memory.
    """

    name: str
    folder: Path
    corpus: str
    manifest: Manifest
    rows: Mapping[str, SavedRow]


def load_run(name: str, folder: Path, corpus: str = "") -> Run:
    """Read a run. Raises :class:`core.errors.DataError` if the folder is not one."""
    manifest = Manifest.read(folder)
    rows = {row.question.id: _light(row) for row in read_attempts(folder)}
    return Run(name, folder, corpus, manifest, rows)


def common_questions(runs: Sequence[Run]) -> list[str]:
    """Return the ids of the questions that every run has answered or failed at, in the order of the first run."""
    first, *others = runs
    return [question for question in first.rows if all(question in other.rows for other in others)]


def _light(row: SavedRow) -> SavedRow:
    return replace(row, answer=row.answer and replace(row.answer, further={}), written=())
