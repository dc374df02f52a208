"""Print finished runs on the same questions as one table; no model is started.

    corag table runs/test/one_step-1a2b3c4d rounds/world/round-1/test/corag
    corag table runs/test/* --baseline one_step-1a2b3c4d        # paired tests of every run against one
    corag table runs/test/* --kinds bridge,comparison            # of these types of question; --min_hops 2 of so many hops
    corag table seeds/* --over seeds                             # mean and deviation over runs that differ in nothing else

The rows are the questions that every run has answered or failed at; a run is called by what tells its path
from the others'.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from core.errors import ConfigError, nearest
from core.runs.folder import read_rows
from core.runs.manifest import CHAINS, Manifest
from core.runs.rows import SavedRow
from core.runs.stamp import differences
from core.types import Question
from eval.scoring.judge import JUDGE
from eval.scoring.rows import Measures, PassageTexts, measures_of
from eval.scoring.scorers import Scorer, chosen_scorer, scorer_title
from eval.statistics.comparisons import against_baseline
from eval.tables.runs import NO_TEXTS, figures, status, summarise_runs
from scripts.commands.table_parts import (
    Over,
    chosen_measures,
    group_runs,
    mean_of,
    means_record,
    passage_texts,
    print_comparisons,
    print_means,
)
from scripts.printing import print_table

Manifests = Mapping[str, Manifest]
Rows = Mapping[str, Mapping[str, SavedRow]]


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


@dataclass(frozen=True)
class TableOptions:
    """What a table shows besides a line per run.

    Attributes:
        scorer: how answers are scored; "auto" takes that of the first run.
        recall_at: recall is measured over so many collected passages; 0 takes that of the first run.
        baseline: the run, by its name in the table or the end of its path, that every other is tested
            against.
        measures: the measures to test; all of them without any. More tests mean a stricter correction.
        over: "seeds" or "demonstrations" adds mean and standard deviation over the runs that differ in
            nothing else.
        kinds: types of question to show, as their dataset names them ("bridge"); all without any.
        min_hops: show questions of so many hops or more.
        answer_recall: also look for the gold answers in the texts of the passages, which the runs' indexes
            must have here.
    """

    scorer: str = "auto"
    recall_at: int = 0
    baseline: str = ""
    measures: list[str] = field(default_factory=list)
    over: Over = ""
    kinds: list[str] = field(default_factory=list)
    min_hops: int = 0
    answer_recall: bool = False


@dataclass(frozen=True)
class Config(Runs, TableOptions):
    """Options of 'corag table'."""

    USAGE = "corag table RUN RUN ..."


PLAIN = TableOptions()


def main(config: Config) -> int:
    """Print the table and a line of JSON; return 0, or 1 if every question of some run failed."""
    folders = [Path(run) for run in config.runs]
    return show(dict(zip(names_of(folders), folders, strict=True)), config)


def show(runs: Mapping[str, Path], options: TableOptions = PLAIN) -> int:
    """Print the table of some runs by name.

    Raises :class:`ConfigError` if they answered different questions, or none.
    """
    manifests = {name: manifest_of_answers(run) for name, run in runs.items()}
    check_same_file(list(manifests.values()))
    if options.measures and not options.baseline:
        raise ConfigError(
            "measures says what to test against a baseline: name one with --baseline, or leave it out."
        )
    groups = group_runs({name: manifest.settings for name, manifest in manifests.items()}, options.over)
    baseline = baseline_of(runs, options.baseline)
    first = next(iter(manifests.values()))
    rows = {name: meant(read_rows(run), options) for name, run in runs.items()}
    questions = common_questions(rows)
    chosen, recall_at = scoring_of(first, options.scorer, options.recall_at)
    texts = texts_of(runs, manifests, options)
    summaries = summarise_runs(runs, questions, chosen, recall_at, texts)
    print_table(summaries, runs, scorer_title(chosen, questions, first.last.aliases))
    for note in filter(None, (unfinished_note(rows, questions), gold_note(rows, manifests))):
        print(note)
    record = figures(summaries, runs, chosen)
    if baseline:
        record |= show_against(
            only(rows, questions), manifests, chosen, recall_at, baseline, options.measures, texts
        )
    if groups:
        means = {
            name: mean_of([summary for summary in summaries if summary.method in members])
            for name, members in groups.items()
        }
        print_means(means, options.over, recall_at)
        record |= {"over": options.over, "means": means_record(means)}
    print(json.dumps(record))
    return status(summaries)


def show_against(
    rows: Rows,
    manifests: Manifests,
    chosen: Scorer,
    recall_at: int,
    baseline: str,
    wanted: Sequence[str],
    texts: Mapping[str, PassageTexts],
) -> dict[str, Any]:
    """Print the tests of every run against the baseline and return them for the line of JSON."""
    measured = measured_alike(rows, manifests, chosen, recall_at, texts)
    compared = against_baseline(chosen_measures(measured, wanted), baseline)
    print_comparisons(compared, baseline, recall_at)
    tests = [{"run": one.run, "measure": one.measure, **one.to_json()} for one in compared]
    return {"baseline": baseline, "against": tests}


def scoring_of(manifest: Manifest, scorer: str, recall_at: int) -> tuple[Scorer, int]:
    """Return the scorer and the depth of recall: those of the run's last start for "auto" and for 0."""
    chosen = chosen_scorer(manifest.last.scorer if scorer == "auto" else scorer, manifest.dataset)
    return chosen, recall_at or manifest.last.recall_at


def measured_alike(
    rows: Rows,
    manifests: Manifests,
    chosen: Scorer,
    recall_at: int,
    texts: Mapping[str, PassageTexts] = NO_TEXTS,
) -> dict[str, Measures]:
    """Return each run's measures by question id, all by the gold answers of the first run.

    No recall without searches.
    """
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


def gold_note(rows: Rows, manifests: Manifests) -> str:
    """Say where the gold answers that runs keep differ, as they do after a change of --aliases.

    "" if they do not.
    """
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


def texts_of(
    runs: Mapping[str, Path], manifests: Manifests, options: TableOptions
) -> dict[str, PassageTexts]:
    """Return where to read each run's passages, if that is asked for."""
    if not options.answer_recall:
        return {}
    return {
        name: passage_texts(runs[name], manifest.last)
        for name, manifest in manifests.items()
        if manifest.searches
    }


def meant(rows: Mapping[str, SavedRow], options: TableOptions) -> Mapping[str, SavedRow]:
    """Return the rows of the questions that are to be shown.

    Raises :class:`ConfigError` if there are none.
    """
    kinds = {row.question.kind for row in rows.values()}
    for kind in options.kinds:
        if rows and kind not in kinds:
            raise ConfigError(
                f"no question is of the type '{kind}': {nearest(kind, [each for each in kinds if each])}"
            )
    kept = {
        name: row
        for name, row in rows.items()
        if (not options.kinds or row.question.kind in options.kinds) and row.question.hops >= options.min_hops
    }
    if rows and not kept:
        typed = f" of type {' or '.join(options.kinds)}" if options.kinds else ""
        raise ConfigError(
            f"no question{typed} has {options.min_hops} hops or more (some datasets do not tell): lower "
            "--min_hops."
        )
    return kept


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


def only(rows: Rows, questions: Sequence[Question]) -> Rows:
    """Keep of each run the rows of these questions, in their order."""
    return {name: {question.id: found[question.id] for question in questions} for name, found in rows.items()}


def baseline_of(runs: Mapping[str, Path], baseline: str) -> str:
    """Return the name of the run that is called so, whose path is or ends so, or whose folder begins so
    before a dash; "" for "".

    Raises :class:`ConfigError` if there is no such run, more than one, or none besides it.
    """
    if not baseline:
        return ""
    if len(runs) < 2:
        raise ConfigError("a baseline is there to test other runs against: give two runs or more.")
    wanted = Path(baseline).parts
    fitting = [name for name, folder in runs.items() if folder.parts[-len(wanted) :] == wanted] or [
        name for name, folder in runs.items() if folder.name.startswith(f"{baseline}-")
    ]
    if baseline in runs or len(fitting) == 1:
        return baseline if baseline in runs else fitting[0]
    if fitting:
        raise ConfigError(f"the baseline '{baseline}' may be {' or '.join(fitting)}: give more of its path.")
    raise ConfigError(
        f"there is no run '{baseline}' in the table to be the baseline: {nearest(baseline, runs)}"
    )


def check_same_file(manifests: Sequence[Manifest]) -> None:
    """Raise :class:`ConfigError` unless the runs of these manifests answered the same question file."""
    first, *others = (manifest.questions for manifest in manifests)
    for other in others:
        if changed := differences(first, other, "questions"):
            raise ConfigError(
                f"the runs answered different question files ({'; '.join(changed)}): give runs on the same "
                "file."
            )


def manifest_of_answers(run: Path) -> Manifest:
    """Read a run's manifest.

    Raises :class:`ConfigError` if it holds chains for training or a judge's verdicts, not answers.
    """
    manifest = Manifest.read(run)
    if manifest.method == CHAINS:
        raise ConfigError(f"'{run}' holds sampled chains, which have no answers: give runs of 'corag run'.")
    if manifest.method == JUDGE:
        raise ConfigError(f"'{run}' holds a judge's verdicts on the run '{run.parent}': give that one.")
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
