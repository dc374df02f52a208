"""Print finished runs on the same questions as one table; no model is started.

    corag table runs/test/one_step-1a2b3c4d rounds/world/round-1/test/corag

The rows are the questions that every run has answered or failed at; a run is called by what tells its path from the others'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.records import differences, read_manifest, read_rows
from core.types import Question
from eval.scorers import chosen_scorer
from scripts.run import report
from training.chains import METHOD


@dataclass(frozen=True)
class Config:
    """Options of 'corag table'.

    Attributes:
        runs: one or more run folders.
        scorer: how answers are scored; "auto" takes that of the first run.
        recall_at: recall is measured over so many collected passages; 0 takes that of the first run.
    """

    runs: list[str] = field(default_factory=list)
    scorer: str = "auto"
    recall_at: int = 0

    def __post_init__(self) -> None:
        if not self.runs:
            raise ConfigError("no run was given: write corag table RUN RUN ...")
        if len(set(self.runs)) < len(self.runs):
            raise ConfigError("a run was given twice: name each once.")


def main(config: Config) -> int:
    """Print the table and a line of JSON; return 0, or 1 if every question of some run failed."""
    folders = [Path(run) for run in config.runs]
    return show(dict(zip(names_of(folders), folders, strict=True)), config.scorer, config.recall_at)


def show(runs: Mapping[str, Path], scorer: str = "auto", recall_at: int = 0) -> int:
    """Print the table of some runs by name. Raises :class:`ConfigError` if they answered different questions, or none."""
    first, *others = (manifest_of_answers(run) for run in runs.values())
    asked = first["settings"]["questions"]
    for other in others:
        if changed := differences(asked, other["settings"]["questions"], "questions"):
            raise ConfigError(
                f"the runs answered different question files ({'; '.join(changed)}): a table is of runs on the same file."
            )
    rows = [read_rows(run) for run in runs.values()]
    questions = [
        Question(**record["question"]) for name, record in rows[0].items() if all(name in other for other in rows)
    ]
    if not questions:
        raise ConfigError("the runs have no question in common: answer the same questions with each.")
    start = first["starts"][-1]
    chosen = chosen_scorer(start["scorer"] if scorer == "auto" else scorer, asked["dataset"])
    return report(runs, questions, chosen, recall_at or start["recall_at"])


def manifest_of_answers(run: Path) -> dict[str, Any]:
    """Read a run's manifest. Raises :class:`ConfigError` if it holds chains for training instead of answers."""
    manifest = read_manifest(run)
    if manifest["settings"]["method"] == METHOD:
        raise ConfigError(f"'{run}' holds sampled chains, which have no answers: give runs of 'corag run'.")
    return manifest


def names_of(folders: Sequence[Path]) -> list[str]:
    """Call each folder by the part of its path that tells it from the others.

    >>> names_of([Path("out/untuned/test/corag"), Path("out/round-1/test/corag")])
    ['untuned', 'round-1']
    >>> names_of([Path("out/one_step"), Path("out/round-1/test/corag")])
    ['one_step', 'round-1/test/corag']
    """
    paths = [list(folder.parts) for folder in folders]
    if len(paths) == 1:
        return [folders[0].name]
    while len({path[0] for path in paths}) == 1 and min(map(len, paths)) > 1:
        paths = [path[1:] for path in paths]
    while len({path[-1] for path in paths}) == 1 and min(map(len, paths)) > 1:
        paths = [path[:-1] for path in paths]
    return ["/".join(path) for path in paths]
