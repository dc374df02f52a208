"""Finished runs as a report reads them: light rows for figures; whole rows are read one by one for traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from core.runs.folder import read_attempts
from core.runs.manifest import Manifest
from core.runs.rows import SavedRow


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk.

    ``corpus``: what its index was built from, "" if that is not known. ``rows``: by question id, without
    steps and what its method adds to answers, so that many runs fit into memory.
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


def _light(row: SavedRow) -> SavedRow:
    return replace(row, answer=row.answer and replace(row.answer, further={}), written=())
