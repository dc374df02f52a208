"""The results table of finished runs: a line per run, tests against a baseline, means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from corag.core.errors import ConfigError, nearest
from corag.core.options.classes import Options
from corag.core.options.names import NameOrPath
from corag.core.runs.failures import Failures
from corag.core.types import Question
from eval.scoring.rankings import EXAMPLES, find_ranking_measures
from eval.scoring.rows import Measures, measure_title
from eval.scoring.scorers import Scorer
from eval.statistics.comparisons import (
    Against,
    Leading,
    against_baseline,
    against_each_other,
    find_leaders,
)
from eval.statistics.intervals import Interval, Spread
from eval.tables.cautions import depth_note, figure_remarks, group_remarks, remarks, size_note
from eval.tables.columns import Summary, summarise
from eval.tables.conditions import Conditions, describe_conditions, pages_note
from eval.tables.disagreements import Disagreements, find_disagreements
from eval.tables.means import (
    Means,
    Over,
    differing_note,
    group_runs,
    mean_of_scores,
    mean_over_runs,
    means_record,
)
from eval.tables.runs import Run, ScoredRuns, read_runs, score_runs
from eval.tables.verdicts import verdict


@dataclass(frozen=True)
class TableView(Options):
    """What a table shows besides a line per run."""

    scorer: str = "auto"
    """how answers are scored; "auto" takes that of the first run."""

    recall_at: Annotated[int, Ge(0)] = 0
    """k of recall@k over the collected passages; 0 takes that of the first run."""

    baseline: NameOrPath = ""
    """the run that all others are tested against, by its name in the table or the end of its path."""

    measures: list[str] = field(default_factory=list)
    """measures to show and test, by name or heading (em or EM), or ranking measures of ir-measures (nDCG@10,
    RR@10, AP, R@100); unset: EM, F1, recall and the like. More tests mean a stricter correction."""

    disagreements: Annotated[int, Ge(0)] = 0
    """list this many questions that only one of a run and the baseline answered correctly, losses of the run
    first, in text and JSON; 0 for none."""

    over: Over = ""
    """"seeds" or "demonstrations" adds mean and standard deviation over the runs that differ in nothing
    else."""

    kinds: list[str] = field(default_factory=list)
    """question types to show, as named by the dataset ("bridge"); unset: all."""

    min_hops: Annotated[int, Ge(0)] = 0
    """show only questions with at least this many hops."""

    answer_recall: bool = False
    """also search the passages' texts for the gold answers; requires the runs' indexes."""


PLAIN_VIEW = TableView()


@dataclass(frozen=True)
class ResultsTable:
    """Finished runs on the same questions in figures: all that is printed, without the runs' rows.

    Attributes:
        runs: their folders by name.
        summaries: a line per run, in the same order.
        scorer: what answers were scored by.
        scoring: what to call it in a sentence, with the files that it needed.
        conditions: what the runs were made with.
        leaders: the best runs by measure, and which others are significantly worse; {} if none was tested.
        notes: which questions are left out, and whose gold answers count where the runs keep others.
        baseline: the run that the others were tested against, if there is one.
        against: the tests of every other run against it.
        disagreements: what each of them and the baseline disagree on, if that is asked for.
        over: what the runs of one mean differ in.
        means: by group of runs, called by its first, that differ in ``over`` only.
        groups: the names of the runs in each of them.
        measures: those that are shown; all without any. JSON has all of them.
    """

    runs: Mapping[str, Path]
    summaries: Sequence[Summary]
    scorer: Scorer
    scoring: str
    conditions: Conditions
    leaders: Mapping[str, Leading] = field(default_factory=dict)
    notes: Sequence[str] = ()
    baseline: str = ""
    against: Sequence[Against] = ()
    disagreements: Sequence[Disagreements] = ()
    over: Over = ""
    means: Means = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    measures: Sequence[str] = ()

    def shows(self, measure: str) -> bool:
        """Whether a measure is shown."""
        return not self.measures or measure in self.measures

    @property
    def recall_at(self) -> int:
        """Over how many passages recall was measured."""
        return self.summaries[0].recall_at

    @property
    def verdict(self) -> str:
        """Which run is the best and how sure that is, in a sentence; "" where there is nothing to say.

        Of runs with a mean over some, that mean counts.
        """
        values: dict[str, dict[str, Interval | Spread | None]] = {}
        for each in self.summaries:
            means = self.means.get(each.method, {})
            values[each.method] = {
                **each.measures,
                **{name: mean for name, mean in means.items() if mean.n > 1},
            }
        return verdict(values, self.leaders, self.recall_at)

    @property
    def headlines(self) -> list[str]:
        """What stands right below the figures, on a terminal and on a page: verdict and cautions."""
        return list(filter(None, [self.verdict, size_note(self.summaries), *self.cautions]))

    @property
    def cautions(self) -> list[str]:
        """What makes the runs hard to compare: it stands right below the figures."""
        is_tested = self.leaders or self.against
        differing = self.conditions.confounding if is_tested else ""
        depth = depth_note(self.summaries) if self.shows("recall") else ""
        return list(filter(None, [self.conditions.training_note, differing, depth]))

    @property
    def sentences(self) -> list[str]:
        """All that a reader must know beside the figures and conditions, but for the verdict."""
        of_runs = [
            f"{names}: {remark}"
            for each in (remarks, figure_remarks)
            for remark, names in group_remarks(self.summaries, each).items()
        ]
        return [*filter(None, [*self.cautions, *self.notes, self.conditions.variation]), *of_runs]

    @property
    def status(self) -> int:
        """The exit status of a command that made these runs: 1 if some run has no answer."""
        return int(any(summary.is_empty for summary in self.summaries))

    @property
    def failures(self) -> Failures:
        """The failed questions of all runs."""
        return sum((summary.failures for summary in self.summaries), Failures())

    def to_json(self) -> dict[str, Any]:
        """Return the table as a JSON object: fractions, intervals as [low, high]."""
        runs = {
            each.method: each.to_json() | {"folder": str(self.runs[each.method])} for each in self.summaries
        }
        record: dict[str, Any] = {
            "runs": runs,
            "scorer": self.scorer.name,
            "scorer_title": self.scoring,
            "conditions": self.conditions.to_json(),
            "notes": self.sentences,
        }
        if self.leaders:
            record |= {
                "verdict": self.verdict,
                "leaders": {name: each.to_json() for name, each in self.leaders.items()},
            }
        if self.baseline:
            tests = [{"run": one.run, "measure": one.measure, **one.to_json()} for one in self.against]
            record |= {"baseline": self.baseline, "against": tests}
        if self.disagreements:
            record["disagreements"] = {each.run: each.to_json() for each in self.disagreements}
        if self.means:
            record |= {"over": self.over, "means": means_record(self.means)}
        return record


def table_of_runs(
    folders: Mapping[str, Path], view: TableView = PLAIN_VIEW, questions: Sequence[Question] | None = None
) -> ResultsTable:
    """Return the table of finished runs by name, over the questions that all of them have.

    ``questions``: those to keep to, by whose gold answers all is scored; without, the runs' own.

    Raises :class:`ConfigError` if they answered different questions, or none.
    """
    if view.disagreements and not view.baseline:
        raise ConfigError(
            "disagreements are those of every run with a baseline: name one with 'baseline', or leave it out."
        )
    baseline = find_baseline(folders, view.baseline)
    scored_runs = score_view(folders, view, questions)
    measures = _find_measures(scored_runs, view.measures) if view.measures else ()
    table = table_of_scored(scored_runs, measures=measures, over=view.over)
    return _with_baseline(table, scored_runs, baseline, view) if baseline else table


def score_view(
    folders: Mapping[str, Path], view: TableView, questions: Sequence[Question] | None = None
) -> ScoredRuns:
    """Read runs once and score those questions that a view shows; arguments as of :func:`table_of_runs`."""
    runs = read_runs(folders)
    if questions is not None:
        runs = [run.on(questions) for run in runs]
    return score_runs(
        [select_questions(run, view) for run in runs],
        view.scorer,
        view.recall_at,
        stored_gold=questions is None,
        answer_recall=view.answer_recall,
        measures=view.measures,
    )


def table_of_scored(scored_runs: ScoredRuns, measures: Sequence[str] = (), over: Over = "") -> ResultsTable:
    """Return the table of runs that are read and scored.

    ``measures``: those that are shown; all without any. ``over``: what the runs of one mean differ in.
    """
    runs = scored_runs.runs
    summaries = [summarise(run.name, run.scored_rows, scored_runs.recall_at) for run in runs]
    by_page = [
        run.manifest for run, each in zip(runs, summaries, strict=True) if "r_precision" in each.values
    ]
    table = ResultsTable(
        {run.name: run.folder for run in runs},
        summaries,
        scored_runs.scorer,
        scored_runs.scoring,
        describe_conditions({run.name: run.manifest for run in runs}),
        notes=[*filter(None, [pages_note(by_page)]), *scored_runs.notes],
        measures=measures,
    )
    if over:
        table = _with_means(table, runs, over)
    # Holm's rule is over what a reader sees, here as in the tests against a baseline.
    scores = visible_scores(table, scored_runs) if scored_runs.is_paired else {}
    return replace(table, leaders=find_leaders(scores, failed_ids(table, scored_runs)))


def _with_means(table: ResultsTable, runs: Sequence[Run], over: Over) -> ResultsTable:
    """Return the table with the means over runs that differ in ``over`` only, and how far these differ."""
    by_name = {run.name: run for run in runs}
    groups = group_runs({name: run.manifest.settings for name, run in by_name.items()}, over)
    means = {
        name: mean_over_runs(
            [each for each in table.summaries if each.method in members],
            [by_name[each].measures for each in members],
        )
        for name, members in groups.items()
    }
    notes = [differing_note([by_name[each] for each in members]) for members in groups.values()]
    notes += [f"Of runs that differ in their {over} only, the means are tested and compared."]
    return replace(table, over=over, means=means, groups=groups, notes=[*table.notes, *filter(None, notes)])


def visible_scores(table: ResultsTable, scored_runs: ScoredRuns) -> dict[str, Measures]:
    """Return the scores of the measures that a table shows, by run; of runs of one mean, means by the first.

    A test of one of them would be of luck: they are the same method.
    """
    means = {
        name: mean_of_scores([scored_runs.measures[each] for each in members])
        for name, members in _groups(table, scored_runs).items()
    }
    return {
        run: {name: values for name, values in each.items() if table.shows(name)}
        for run, each in means.items()
    }


def failed_ids(table: ResultsTable, scored_runs: ScoredRuns) -> dict[str, frozenset[str]]:
    """Return the questions that failed by run; of runs of one mean, those that did in any, by the first."""
    failed, groups = scored_runs.failed_ids, _groups(table, scored_runs)
    return {name: frozenset().union(*map(failed.__getitem__, members)) for name, members in groups.items()}


def _groups(table: ResultsTable, scored_runs: ScoredRuns) -> Mapping[str, Sequence[str]]:
    """Return the runs of each mean, by the first; without means each by itself."""
    return table.groups or {run.name: [run.name] for run in scored_runs.runs}


def _with_baseline(
    table: ResultsTable, scored_runs: ScoredRuns, baseline: str, view: TableView
) -> ResultsTable:
    """Return the table with the tests against the baseline, and what each run and it disagree on.

    Raises :class:`ConfigError` if the runs have no question in common.
    """
    if not scored_runs.is_paired:
        raise ConfigError(
            "a baseline needs runs on the same questions, but these were asked others each: leave it out."
        )
    baseline = next((first for first, members in table.groups.items() if baseline in members), baseline)
    failed = failed_ids(table, scored_runs)
    against = against_baseline(visible_scores(table, scored_runs), baseline, failed)
    (base,) = (run for run in scored_runs.runs if run.name == baseline)
    pairs = [
        find_disagreements(base, run, view.disagreements)
        for run in scored_runs.runs
        if view.disagreements and run is not base
    ]
    disagreements = [pair for pair in pairs if pair is not None]
    return replace(table, baseline=baseline, against=against, disagreements=disagreements)


def compare_each_other(table: ResultsTable, scored_runs: ScoredRuns) -> Mapping[str, Sequence[Against]]:
    """Test every run against every other one, by baseline: a reader of a report may choose any.

    Of runs that differ in their seed alone, their mean by the name of the first. Each baseline's tests are
    those of 'corag table --baseline'. Without gold answers, without another run, or with other questions for
    each run, nothing is tested.
    """
    measures = visible_scores(table, scored_runs)
    testable = scored_runs.is_paired and len(measures) > 1 and all("em" in each for each in measures.values())
    return against_each_other(measures, failed_ids(table, scored_runs)) if testable else {}


def select_questions(run: Run, view: TableView) -> Run:
    """Return the run with its rows of the questions that are to be shown.

    Raises :class:`ConfigError` if there are none.
    """
    kinds = {row.question.kind for row in run.rows.values()}
    rows = {
        name: row
        for name, row in run.rows.items()
        if (not view.kinds or row.question.kind in view.kinds) and row.question.hops >= view.min_hops
    }
    for kind in view.kinds:
        if run.rows and kind not in kinds:
            raise ConfigError(
                f"no question is of the type '{kind}': {nearest(kind, sorted(filter(None, kinds)))}"
            )
    if run.rows and not rows:
        raise ConfigError(
            f"no question has {view.min_hops} hops or more (some datasets do not tell): lower 'min_hops'."
        )
    return replace(run, rows=rows)


def find_baseline(folders: Mapping[str, Path], baseline: str) -> str:
    """Return the name of the run that is meant by a name, a path, its end, or its folder before a dash.

    Returns "" for "". Raises :class:`ConfigError` if there is no such run, more than one, or none besides it.
    """
    if not baseline or (baseline in folders and len(folders) > 1):
        return baseline
    end = Path(baseline).parts
    exact = [name for name, folder in folders.items() if folder.parts[-len(end) :] == end]
    fitting = exact or [name for name, folder in folders.items() if folder.name.startswith(f"{baseline}-")]
    if len(folders) < 2:
        raise ConfigError("a baseline is there to test other runs against: give two runs or more.")
    if not fitting:
        raise ConfigError(
            f"there is no run '{baseline}' in the table to be the baseline: {nearest(baseline, folders)}"
        )
    if len(fitting) > 1:
        raise ConfigError(f"the baseline '{baseline}' may be {' or '.join(fitting)}: give more of its path.")
    return fitting[0]


def _find_measures(scored_runs: ScoredRuns, requested_names: Sequence[str]) -> list[str]:
    """Return the names of measures that are named as in JSON or as in the heading of a table.

    Raises :class:`ConfigError` for one that no run has.
    """
    names = {measure for measures in scored_runs.measures.values() for measure in measures}
    spellings = {measure_title(name, scored_runs.recall_at).lower(): name for name in names}
    spellings |= {name: name for name in names}
    for name, measure in find_ranking_measures(requested_names, scored_runs.recall_at).items():
        if str(measure) not in names:
            raise ConfigError(f"no question has gold passages to measure '{name}' by.")
        spellings[name.lower()] = str(measure)
    for name in requested_names:
        if name.lower() not in spellings:
            hint = nearest(name, [*names, *EXAMPLES])
            raise ConfigError(f"there is no measure '{name}' of these runs: {hint}")
    return list(dict.fromkeys(spellings[name.lower()] for name in requested_names))
