"""Finished runs as callers from Python name them: a mapping, a list of folders, one folder, results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.hub_files import local_folder
from eval.tables.runs import Runs


class FinishedRuns:
    """What holds finished runs. ``runs``: their folders by name."""

    runs: dict[str, Path]


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
    if not isinstance(runs, Iterable):
        raise ConfigError(_WRONG_RUNS.format(caller, _kind(runs)))
    folders = list(runs.values() if isinstance(runs, Mapping) else runs)
    for folder in folders:
        if not isinstance(folder, str | os.PathLike):
            raise ConfigError(_WRONG_RUNS.format(caller, f"a {type(runs).__name__} with {_kind(folder)}"))
    if not folders:
        raise ConfigError(f"{caller} was given no run: name one or more run folders.")
    paths = [os.fspath(folder) for folder in folders]
    if isinstance(runs, Mapping):
        return dict(zip(map(str, runs), map(local_folder, paths), strict=True))
    return Runs(runs=paths).by_name()


_WRONG_RUNS = (
    '{} takes run folders, by name ({{"mine": "runs/mine"}}) or in a list (["runs/mine"]), or results, but '
    "was given {}."
)


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
