"""Finished runs on the same questions: what a command is given of them, checks, and reads back from disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from core.errors import ConfigError
from core.runs.folder import read_rows
from core.runs.manifest import CHAINS, VERDICTS, Manifest
from core.runs.rows import SavedRow
from core.runs.stamp import differences
from core.types import Question
from eval.scoring.rows import Measures, PassageTexts, measures_of
from eval.scoring.scorers import Scorer, chosen_scorer
from eval.tables.table import Summary, summarise

Manifests = Mapping[str, Manifest]
Rows = Mapping[str, Mapping[str, SavedRow]]
"""Rows by run and question id."""
NO_TEXTS: Mapping[str, PassageTexts] = {}


@dataclass(frozen=True)
class Runs:
    """What a command on finished runs is given.

    Attributes:
        runs: one or more run folders.
    """

    USAGE: ClassVar[str]

    runs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.runs:
            raise ConfigError(f"no run was given: write {self.USAGE}")
        # Two paths to one folder would be one row under one name, or two under two.
        if len({Path(run).resolve() for run in self.runs}) < len(self.runs):
            raise ConfigError("a run was given twice: name each once.")

    def by_name(self) -> dict[str, Path]:
        """Return the folders, each by the part of its path that tells it from the others."""
        folders = [Path(run) for run in self.runs]
        return dict(zip(names_of(folders), folders, strict=True))


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


def manifest_of_answers(run: Path) -> Manifest:
    """Read a run's manifest.

    Raises :class:`ConfigError` if it holds chains for training or a judge's verdicts, not answers.
    """
    manifest = Manifest.read(run)
    if manifest.method == CHAINS:
        raise ConfigError(f"'{run}' holds sampled chains, which have no answers: give runs of 'corag run'.")
    if manifest.method == VERDICTS:
        raise ConfigError(f"'{run}' holds a judge's verdicts on the run '{run.parent}': give that one.")
    return manifest


def check_same_file(manifests: Sequence[Manifest]) -> None:
    """Raise :class:`ConfigError` unless the runs of these manifests answered the same question file."""
    first, *others = (manifest.questions for manifest in manifests)
    for other in others:
        if changed := differences(first, other, "questions"):
            raise ConfigError(
                f"the runs answered different question files ({'; '.join(changed)}): give runs on the same "
                "file."
            )


def scoring_of(manifest: Manifest, scorer: str, recall_at: int) -> tuple[Scorer, int]:
    """Return the scorer and the depth of recall: those of the run's last start for "auto" and for 0."""
    chosen = chosen_scorer(manifest.last.scorer if scorer == "auto" else scorer, manifest.dataset)
    return chosen, recall_at or manifest.last.recall_at


def common_questions(rows: Rows) -> list[Question]:
    """Return the questions that every run has answered or failed at.

    Raises :class:`ConfigError` if there are none.
    """
    if empty := [name for name, found in rows.items() if not found]:
        raise ConfigError(f"the run '{empty[0]}' has no finished question yet: wait for it, or leave it out.")
    first, *others = rows.values()
    questions = [row.question for name, row in first.items() if all(name in other for other in others)]
    if not questions:
        raise ConfigError("the runs have no question in common: answer the same questions with each.")
    return questions


def rows_of(rows: Rows, questions: Sequence[Question]) -> Rows:
    """Keep of each run the rows of these questions, in their order."""
    return {name: {question.id: found[question.id] for question in questions} for name, found in rows.items()}


def rows_on(rows: Mapping[str, SavedRow], questions: Sequence[Question] | None) -> Mapping[str, SavedRow]:
    """Keep a run's rows of these questions, with the questions as they are now; all as they are for None.

    What a run's folder holds may be more: it may have been made with a larger limit.
    """
    if questions is None:
        return rows
    return {each.id: replace(rows[each.id], question=each) for each in questions if each.id in rows}


def summarise_runs(
    runs: Mapping[str, Path],
    questions: Sequence[Question],
    chosen: Scorer,
    recall_at: int,
    texts: Mapping[str, PassageTexts] = NO_TEXTS,
) -> list[Summary]:
    """Read the runs back from disk and summarise the given questions of each.

    ``texts``: passages by id, for some runs.
    """
    asked = {question.id: question for question in questions}
    summaries = []
    for name, folder in runs.items():
        found = read_rows(folder)
        searches = Manifest.read(folder).searches
        # Gold answers come from the question file: aliases may have been added to it since.
        rows = [replace(found[key], question=question) for key, question in asked.items() if key in found]
        summaries.append(
            summarise(name, rows, chosen, recall_at=recall_at, searches=searches, texts=texts.get(name))
        )
    return summaries


def measured_alike(
    rows: Rows,
    manifests: Manifests,
    chosen: Scorer,
    recall_at: int,
    texts: Mapping[str, PassageTexts] = NO_TEXTS,
) -> dict[str, Measures]:
    """Return each run's measures by question, by the first run's gold answers; no recall without searches."""
    asked = next(iter(rows.values()))
    return {
        name: measures_of(
            (replace(row, question=asked.get(key, row).question) for key, row in found.items()),
            chosen,
            recall_at,
            searches=manifests[name].searches,
            texts=texts.get(name),
        )
        for name, found in rows.items()
    }


def unfinished_note(rows: Rows, questions: Sequence[Question]) -> str:
    """Say how many questions are left out since some run has not answered them; "" if none are."""
    known = {name for found in rows.values() for name in found}
    lacking = [
        f"'{run}' lacks {len(known) - len(found):,}" for run, found in rows.items() if len(found) < len(known)
    ]
    left_out = len(known) - len(questions)
    return (
        f"{left_out:,} of {len(known):,} questions are left out: {', '.join(lacking)} of them."
        if left_out
        else ""
    )


def gold_note(rows: Rows, manifests: Manifests) -> str:
    """Say where the gold answers that runs keep differ, as after a change of --aliases; "" if nowhere."""
    (first, asked), *others = rows.items()
    said = []
    for name, found in others:
        kept = [(row.question, asked[key].question) for key, row in found.items() if key in asked]
        if changed := sum(one.answers != other.answers for one, other in kept):
            said.append(f"'{name}' keeps others than '{first}' for {changed:,} of {len(kept):,} questions")
    for name, manifest in manifests.items():
        if len({start.aliases for start in manifest.starts if start.aliases is not None}) > 1:
            said.append(f"the starts of '{name}' had different --aliases")
    return (
        f"Stored gold answers differ: {'; '.join(said)}. All runs are scored by those of '{first}'."
        if said
        else ""
    )


def all_failed(summaries: Sequence[Summary]) -> bool:
    """Whether every question of some run failed: then its command's exit status is 1."""
    return any(summary.failed == summary.n for summary in summaries)
