"""The results table of finished runs: a line per run, tests against a baseline, means over seeds."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from core.errors import ConfigError, DataError, nearest
from core.runs.failures import Failures
from core.runs.folder import read_rows
from core.runs.manifest import Manifest, Start
from core.runs.rows import SavedRow
from core.runs.stamp import differences
from core.types import Passage, Question
from eval.scoring.rows import Measures, PassageTexts
from eval.scoring.scorers import Scorer, scorer_title
from eval.statistics.comparisons import Against, against_baseline
from eval.statistics.intervals import Spread, spread
from eval.tables.runs import (
    NO_TEXTS,
    Manifests,
    all_failed,
    check_same_file,
    common_questions,
    gold_note,
    manifest_of_answers,
    measured_alike,
    rows_of,
    rows_on,
    scoring_of,
    summarise_runs,
    unfinished_note,
)
from eval.tables.table import Summary, json_record
from retrieval.store import PassageStore, has_store

Over = Literal["", "seeds", "demonstrations"]
Means = Mapping[str, Mapping[str, Spread]]
"""Means by the first run of a group and by measure; tokens per question are among the measures."""

# Where a manifest's settings say what may differ between the runs of one mean. Methods name their
# demonstrations in these three ways.
_VARYING: dict[str, tuple[tuple[str, ...], ...]] = {
    "seeds": (("seed",),),
    "demonstrations": (
        ("demonstrations",),
        ("options", "demonstrations"),
        ("options", "reader_demonstrations"),
        ("options", "demonstration_ids"),
    ),
}


@dataclass(frozen=True)
class TableView:
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


PLAIN = TableView()


@dataclass(frozen=True)
class ResultsTable:
    """Finished runs on the same questions in figures.

    Attributes:
        runs: their folders by name.
        summaries: a line per run, in the same order.
        scorer: what answers were scored by.
        scoring: what to call it in a sentence, with the files that it needed.
        notes: which questions are left out, and whose gold answers count where the runs keep others.
        against: the tests of every other run against the ``baseline``, if there is one.
        means: by group of runs, called by its first, that differ in ``over`` only.
    """

    runs: Mapping[str, Path]
    summaries: Sequence[Summary]
    scorer: Scorer
    scoring: str
    notes: Sequence[str] = ()
    baseline: str = ""
    against: Sequence[Against] = ()
    over: Over = ""
    means: Means = field(default_factory=dict)

    @property
    def recall_at(self) -> int:
        """Over how many passages recall was measured."""
        return self.summaries[0].recall_at

    @property
    def status(self) -> int:
        """The exit status of a command that made these runs: 1 if every question of some run failed."""
        return int(all_failed(self.summaries))

    @property
    def failures(self) -> Failures:
        """The failed questions of all runs."""
        return sum((summary.failures for summary in self.summaries), Failures())

    def to_json(self) -> dict[str, Any]:
        """Return the table as a JSON object: fractions, intervals as [low, high]."""
        runs = {s.method: json_record(s) | {"folder": str(self.runs[s.method])} for s in self.summaries}
        record: dict[str, Any] = {"runs": runs, "scorer": self.scorer.name}
        if self.baseline:
            tests = [{"run": one.run, "measure": one.measure, **one.to_json()} for one in self.against]
            record |= {"baseline": self.baseline, "against": tests}
        if self.means:
            record |= {"over": self.over, "means": means_record(self.means)}
        return record


def table_of_new_runs(
    runs: Mapping[str, Path], questions: Sequence[Question], scorer: Scorer, recall_at: int
) -> ResultsTable:
    """Return the table of runs that were just made on these questions, by the gold answers of these."""
    summaries = summarise_runs(runs, questions, scorer, recall_at)
    aliases = Manifest.read(next(iter(runs.values()))).last.aliases
    return ResultsTable(runs, summaries, scorer, scorer_title(scorer, questions, aliases))


def table_of_runs(
    runs: Mapping[str, Path], view: TableView = PLAIN, questions: Sequence[Question] | None = None
) -> ResultsTable:
    """Return the table of finished runs by name, over the questions that all of them have.

    ``questions``: those to keep to, by whose gold answers all is scored; without, the runs' own.

    Raises :class:`ConfigError` if they answered different questions, or none.
    """
    manifests = {name: manifest_of_answers(run) for name, run in runs.items()}
    check_same_file(list(manifests.values()))
    if view.measures and not view.baseline:
        raise ConfigError(
            "measures says what to test against a baseline: name one with --baseline, or leave it out."
        )
    groups = group_runs({name: manifest.settings for name, manifest in manifests.items()}, view.over)
    baseline = baseline_of(runs, view.baseline)
    first = next(iter(manifests.values()))
    rows = {name: chosen_rows(rows_on(read_rows(run), questions), view) for name, run in runs.items()}
    common = common_questions(rows)
    scorer, recall_at = scoring_of(first, view.scorer, view.recall_at)
    texts = texts_of(runs, manifests) if view.answer_recall else NO_TEXTS
    summaries = summarise_runs(runs, common, scorer, recall_at, texts)
    against: Sequence[Against] = ()
    if baseline:
        measured = measured_alike(rows_of(rows, common), manifests, scorer, recall_at, texts)
        against = against_baseline(chosen_measures(measured, view.measures), baseline)
    means = {
        name: mean_of([summary for summary in summaries if summary.method in members])
        for name, members in groups.items()
    }
    notes = [unfinished_note(rows, common)]
    if questions is None:  # else it is known whose gold answers count
        notes.append(gold_note(rows, manifests))
    return ResultsTable(
        runs,
        summaries,
        scorer,
        scorer_title(scorer, common, first.last.aliases),
        [note for note in notes if note],
        baseline,
        against,
        view.over,
        means,
    )


def chosen_rows(rows: Mapping[str, SavedRow], view: TableView) -> Mapping[str, SavedRow]:
    """Return the rows of the questions that are to be shown.

    Raises :class:`ConfigError` if there are none.
    """
    kinds = {row.question.kind for row in rows.values()}
    for kind in view.kinds:
        if rows and kind not in kinds:
            raise ConfigError(
                f"no question is of the type '{kind}': {nearest(kind, [each for each in kinds if each])}"
            )
    kept = {
        name: row
        for name, row in rows.items()
        if (not view.kinds or row.question.kind in view.kinds) and row.question.hops >= view.min_hops
    }
    if rows and not kept:
        typed = f" of type {' or '.join(view.kinds)}" if view.kinds else ""
        raise ConfigError(
            f"no question{typed} has {view.min_hops} hops or more (some datasets do not tell): lower "
            "--min_hops."
        )
    return kept


def baseline_of(runs: Mapping[str, Path], baseline: str) -> str:
    """Return the name of the run that is meant by a name, a path, its end, or its folder before a dash.

    Returns "" for "". Raises :class:`ConfigError` if there is no such run, more than one, or none besides it.
    """
    if not baseline:
        return ""
    if len(runs) < 2:
        raise ConfigError("a baseline is there to test other runs against: give two runs or more.")
    if baseline in runs:
        return baseline
    wanted = Path(baseline).parts
    fitting = [name for name, folder in runs.items() if folder.parts[-len(wanted) :] == wanted] or [
        name for name, folder in runs.items() if folder.name.startswith(f"{baseline}-")
    ]
    if not fitting:
        raise ConfigError(
            f"there is no run '{baseline}' in the table to be the baseline: {nearest(baseline, runs)}"
        )
    if len(fitting) > 1:
        raise ConfigError(f"the baseline '{baseline}' may be {' or '.join(fitting)}: give more of its path.")
    return fitting[0]


def chosen_measures(measured: Mapping[str, Measures], wanted: Sequence[str]) -> Mapping[str, Measures]:
    """Keep the wanted measures, all if none are named.

    Raises :class:`ConfigError` for one that no run has.
    """
    known = {measure for measures in measured.values() for measure in measures}
    for name in wanted:
        if name not in known:
            raise ConfigError(f"there is no measure '{name}' of these runs: {nearest(name, known)}")
    return {
        run: {name: values for name, values in measures.items() if not wanted or name in wanted}
        for run, measures in measured.items()
    }


def group_runs(settings: Mapping[str, Mapping[str, Any]], over: Over) -> dict[str, list[str]]:
    """Return the runs that differ in nothing but ``over``, by the name of the first; {} for "".

    Raises :class:`ConfigError` if there are no two such runs, naming what else the first two differ in.
    """
    if not over:
        return {}
    rest = {name: _without(setting, _VARYING[over]) for name, setting in settings.items()}
    groups: dict[str, list[str]] = {}
    for name, setting in rest.items():
        groups.setdefault(json.dumps(setting, sort_keys=True), []).append(name)
    if len(groups) == len(settings):
        first, *others = rest.values()
        also = f" The first two also differ in {'; '.join(differences(first, others[0]))}." if others else ""
        raise ConfigError(
            f"no two of the runs differ in nothing but their {over}: there is nothing to take a mean "
            f"over.{also}"
        )
    return {members[0]: members for members in groups.values()}


def _without(settings: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    kept = copy.deepcopy(dict(settings))
    for *sections, last in paths:
        place = kept
        for section in sections:
            place = place.get(section, {})
        place.pop(last, None)
    return kept


def mean_of(summaries: Sequence[Summary]) -> dict[str, Spread]:
    """Return mean and deviation over runs of each measure and of the tokens per question."""
    found: dict[str, list[float]] = {}
    for summary in summaries:
        for name, interval in summary.measured.items():
            if interval is not None:
                found.setdefault(name, []).append(interval.mean)
        found.setdefault("tokens", []).append(summary.tokens)
    return {name: spread(values) for name, values in found.items()}


def means_record(means: Means) -> dict[str, Any]:
    """Write means as JSON: fractions, and tokens per question."""
    return {
        name: {
            measure: {
                "mean": round(value.mean, 4),
                "deviation": None if value.deviation is None else round(value.deviation, 4),
                "runs": value.n,
            }
            for measure, value in mean.items()
        }
        for name, mean in means.items()
    }


def texts_of(runs: Mapping[str, Path], manifests: Manifests) -> dict[str, PassageTexts]:
    """Return where to read the passages of each run that searches."""
    return {
        name: passage_texts(runs[name], manifest.last)
        for name, manifest in manifests.items()
        if manifest.searches
    }


def passage_texts(run: Path, start: Start) -> PassageTexts:
    """Return where to read the passages that a start of a run searched.

    That is the store beside its index, which needs no search engine. Raises :class:`ConfigError` if no index
    of the run lies here with its texts, and :class:`DataError` when asked for an id that it lacks.
    """
    stores = [PassageStore(Path(index)) for index in start.index if has_store(Path(index))]
    if not stores:
        raise ConfigError(
            f"the texts of the passages of '{run}' are not at hand: {start.searched} is not the folder of an "
            "index made by 'corag index'. Leave --answer_recall out."
        )

    def read(ids: Sequence[str]) -> list[str]:
        found: dict[str, Passage] = {}
        for store in stores:
            found |= store.passages([name for name in ids if name not in found])
        if missing := [name for name in ids if name not in found]:
            raise DataError(
                f"the index '{start.index[0]}' has no passage '{missing[0]}', which '{run}' found: it was "
                "built anew since."
            )
        return [found[name].contents for name in ids]

    return read
