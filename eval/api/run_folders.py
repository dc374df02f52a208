"""Finished runs as callers from Python name them: a mapping, a list of folders, one folder, results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.runs.rows import SavedRow
from corag.core.types import Question
from corag.core.web.hub_files import local_folder
from eval.api.ask import COLUMNS, stored_answer
from eval.tables.printing import wide_console
from eval.tables.runs import Run, Runs, read_run


@dataclass(frozen=True, repr=False)
class FinishedRuns:
    """Finished runs: their folders by name, and the questions to keep to; None for all that they hold."""

    given: InitVar[RunFolders]
    questions: Sequence[Question] | None = None
    runs: dict[str, Path] = field(init=False)

    def __post_init__(self, given: RunFolders) -> None:
        object.__setattr__(self, "runs", folders_by_name(given, type(self).__name__))

    def rows(self, name: str) -> Mapping[str, SavedRow]:
        """Return one run's rows by question id."""
        return self.load(name).rows

    def show(self, question: str) -> None:
        """Print what each run made of a question, by its id: its chain, answer, sources and cost."""
        console = wide_console(COLUMNS)
        for name in self.runs:
            console.print(f"── {name}", style="bold", markup=False)
            console.print(stored_answer(self.load(name), question))

    def load(self, name: str) -> Run:
        """Return one run with its rows. Raises :class:`ConfigError` for a name that none has."""
        if name not in self.runs:
            raise ConfigError(f"there is no run '{name}' among these: {', '.join(self.runs)}.")
        run = read_run(name, self.runs[name])
        return run if self.questions is None else run.on(self.questions)


RunFolders = Mapping[str, str | Path] | Iterable[str | Path] | str | Path | FinishedRuns
"""Run folders by name; or a list of them, or one, named by their paths as in 'corag table'; or what ``run``
or ``sweep`` returned."""


def folders_by_name(runs: RunFolders, caller: str) -> dict[str, Path]:
    """Return run folders by name; ``caller``: the function that was given them, for messages.

    A folder may be a shared one (hub:OWNER/NAME). Raises :class:`ConfigError` for anything else, for none,
    and for one that is given twice.
    """
    if isinstance(runs, FinishedRuns):
        runs = runs.runs
    if isinstance(runs, str | os.PathLike):
        runs = [runs]
    try:
        if isinstance(runs, Mapping):
            return {str(name): local_folder(os.fspath(folder)) for name, folder in runs.items()}
        return Runs(runs=[os.fspath(folder) for folder in runs]).by_name()
    except TypeError as error:
        raise ConfigError(
            f'{caller} takes run folders, by name ({{"mine": "runs/mine"}}) or in a list (["runs/mine"]), or '
            f"results: {error}."
        ) from None
