"""What a report says about whole runs: figures, tests against every baseline, groups, conditions.

The dataclasses are the page's data: their fields, as JSON, are what the scripts in ``assets/`` read.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corag.core.runs.folder import read_attempts
from corag.core.runs.manifest import Manifest, Start
from corag.core.runs.rows import SavedRow
from corag.core.types import CandidateAnswer, Question, TokenUsage
from eval.datasets.corpora import index_aliases
from eval.scoring.rows import ScoredRow, Scores, strip_unscored
from eval.scoring.scorers import Scorer
from eval.statistics.comparisons import Against, Leading, against_each_other
from eval.statistics.intervals import Interval, bootstrap_mean
from eval.statistics.scaling import pareto_set
from eval.tables.adapters import MARK
from eval.tables.candidates import METRICS, candidate_set, list_candidates
from eval.tables.columns import ReportColumn, Summary, report_columns
from eval.tables.means import find_repeats
from eval.tables.results import ResultsTable, table_of_scored, visible_scores
from eval.tables.runs import Run, ScoredRuns, read_manifests, score_runs
from eval.tables.verdicts import leading_of

SHOWN_MEASURES = ("em", "f1")
Candidates = Mapping[str, Sequence[CandidateAnswer]]
"""A run's candidates by question id: the answers among which its method chose."""


@dataclass(frozen=True)
class ReportRuns:
    """The runs of a report, scored.

    Attributes:
        scored_runs: the runs. Their rows have those steps only that scores are made of, and not what their
            methods add to answers: many runs fit into memory.
        candidates: by run, if its method chose among several answers.
    """

    scored_runs: ScoredRuns
    candidates: Mapping[str, Candidates]


def read_report_runs(
    folders: Mapping[str, Path],
    scorer: str = "auto",
    recall_at: int = 0,
    questions: Sequence[Question] | None = None,
) -> ReportRuns:
    """Read and score runs by name, over the questions that all of them have.

    ``scorer`` and ``recall_at``: "auto" and 0 take those of the first run. ``questions``: those to keep to,
    by whose gold answers all is scored; without, the runs' own. Raises :class:`ConfigError` for runs of
    different question files, folders that hold no answers, or no common question.
    """
    manifests = read_manifests(folders)
    runs, candidates = [], {}
    for name, folder in folders.items():
        run, answers = _read_run(name, folder, manifests[name])
        runs.append(run if questions is None else run.on(questions))
        if any(len(each) > 1 for each in answers.values()):
            candidates[name] = answers
    scored_runs = score_runs(runs, scorer, recall_at, stored_gold=questions is None)
    return ReportRuns(scored_runs, candidates)


def _read_run(name: str, folder: Path, manifest: Manifest) -> tuple[Run, Candidates]:
    rows, candidates = {}, {}
    aliases = index_aliases(manifest.last.index)
    for row in read_attempts(folder):
        # Traces are read again, one by one, when they are packed.
        answer = row.answer and replace(row.answer, further={})
        rows[row.question.id] = strip_unscored(replace(row, answer=answer), aliases)
        candidates[row.question.id] = list_candidates(row, manifest)
    return Run(name, folder, manifest, rows), candidates


@dataclass(frozen=True, slots=True)
class Group:
    """The questions of one kind or number of hops, and how a run did on them.

    ``name`` is "" if the dataset does not say.
    """

    name: str
    n: int
    em: Interval | None
    f1: Interval | None


@dataclass(frozen=True, slots=True)
class RoleUsage:
    """Mean tokens per question of one role: prompt and generated, and what of both was really computed."""

    role: str
    calls: float
    prompt: float
    generated: float
    computed: float


@dataclass(frozen=True, slots=True)
class Stop:
    """How many questions a method stopped at for this reason."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run.

    Attributes:
        name: what the report calls it.
        folder: where it lies.
        summary: its figures by column, with "method" and "unscored" of its :class:`Summary`.
        roles: where the tokens went.
        stops: why the method stopped, the most frequent reason first.
        by_hops: its scores by number of hops.
        by_kind: its scores by type of question.
        conditions: what must be known beside the figures, in words.
        settings: everything that the results depend on, as dotted names and JSON values.
        mark: stands behind the name, if its model was not trained for its prompts.
        oracle: by measure, what the best of its candidates would score; {} if it does not keep several.
    """

    name: str
    folder: str
    summary: Mapping[str, Any]
    roles: Sequence[RoleUsage]
    stops: Sequence[Stop]
    by_hops: Sequence[Group]
    by_kind: Sequence[Group]
    conditions: Mapping[str, str]
    settings: Mapping[str, str]
    mark: str = ""
    oracle: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A run minus the baseline in one measure.

    ``adjusted``: the p-value by Holm's rule over all tests with this baseline; both are None where half of
    the questions failed. ``detectable``: the smallest true difference that so many questions are likely to
    show. ``failed``: questions that failed in either run.
    """

    interval: Interval
    p_value: float | None
    adjusted: float | None
    detectable: float | None
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that a report shows at once.

    Attributes:
        columns: of the table of results, but for those of names and differences.
        runs: the runs in the order given.
        questions: the question file of the first run.
        dataset: its dataset.
        scorer: the scorer's title.
        n: how many questions all runs have.
        verdict: which run is the best and whether that is sure, in a sentence.
        leading: what that is made of; None where nothing was tested.
        notes: what a reader must know beside the figures, such as which questions are left out.
        paired: whether all runs have the same questions.
        recall_at: recall is over so many passages.
        differences: by measure, baseline and run (indices of ``runs``); None for the baseline itself.
        tests: how many were made with each baseline, in all measures: Holm's rule is over these.
        frontier: by measure, the runs that no other run beats at equal or fewer tokens.
        baseline: the run that the page opens with as the baseline (an index of ``runs``).
        training_note: which runs were asked with prompts that their model was not trained for.
    """

    columns: Sequence[ReportColumn]
    runs: Sequence[RunFigures]
    questions: str
    dataset: str
    scorer: str
    n: int
    verdict: str
    leading: Leading | None
    notes: Sequence[str]
    paired: bool
    recall_at: int
    differences: Mapping[str, Sequence[Sequence[Difference | None]]]
    tests: Sequence[int]
    frontier: Mapping[str, Sequence[int]]
    baseline: int = 0
    training_note: str = ""


@dataclass(frozen=True, slots=True)
class ReportContents:
    """What a report shows at once, and the table of its runs by baseline, for whoever takes it elsewhere."""

    overview: Overview
    tables: Sequence[ResultsTable]


def describe(runs: ReportRuns) -> ReportContents:
    """Return what a report shows at once, and its tables."""
    scored_runs, first = runs.scored_runs, runs.scored_runs.runs[0].manifest
    settings = {run.name: run.manifest.settings for run in scored_runs.runs}
    table = table_of_scored(scored_runs, over=find_repeats(settings))
    against = compare_each_other(table, scored_runs)
    untrained_runs = table.conditions.untrained_runs
    figures = [
        _figures(run, summary, runs) for run, summary in zip(scored_runs.runs, table.summaries, strict=True)
    ]
    overview = Overview(
        columns=report_columns(table.summaries),
        runs=[replace(each, mark=MARK if each.name in untrained_runs.runs else "") for each in figures],
        questions=first.last.questions,
        dataset=first.dataset,
        scorer=scored_runs.scoring,
        n=len(scored_runs.questions),
        verdict=table.describe_best(brief=True),
        leading=leading_of(table.leaders),
        notes=table.sentences,
        paired=scored_runs.is_paired,
        recall_at=scored_runs.recall_at,
        differences=differences_to_baselines([run.name for run in scored_runs.runs], against),
        tests=[sum(one.p_holm is not None for one in against.get(name, ())) for name in settings],
        frontier={measure: _frontier(table.summaries, measure) for measure in SHOWN_MEASURES},
        training_note=untrained_runs.note,
    )
    tables = [
        replace(table, baseline=name, against=against[name]) if name in against else table
        for name in settings
    ]
    return ReportContents(overview, tables)


def compare_each_other(table: ResultsTable, scored_runs: ScoredRuns) -> Mapping[str, Sequence[Against]]:
    """Test every run against every other one, by baseline: a reader of the page may choose any.

    Of runs that differ in their seed alone, their mean by the name of the first.

    Each baseline's tests are those of 'corag table --baseline'. Without gold answers, without another run, or
    with other questions for each run, nothing is tested.
    """
    measures = visible_scores(table, scored_runs)
    testable = scored_runs.is_paired and len(measures) > 1 and all("em" in each for each in measures.values())
    return against_each_other(measures, scored_runs.failed_ids) if testable else {}


def differences_to_baselines(
    names: Sequence[str], against: Mapping[str, Sequence[Against]]
) -> dict[str, list[list[Difference | None]]]:
    """Return the tests in EM and F1 by measure, baseline and run, these by their places in ``names``."""
    differences: dict[str, list[list[Difference | None]]] = {
        measure: [[None] * len(names) for _ in names] for measure in SHOWN_MEASURES
    }
    for baseline, tests in against.items():
        for one in (test for test in tests if test.measure in SHOWN_MEASURES):
            test = one.comparison
            difference = Difference(
                test.difference, one.p_value, one.p_holm, test.detectable, one.failure_count
            )
            differences[one.measure][names.index(baseline)][names.index(one.run)] = difference
    return differences


def _frontier(summaries: Sequence[Summary], measure: str) -> list[int]:
    means = [each.measures[measure] for each in summaries]
    return pareto_set([each.tokens for each in summaries], [mean.mean if mean else 0.0 for mean in means])


def _figures(run: Run, summary: Summary, runs: ReportRuns) -> RunFigures:
    rows = list(run.rows.values())
    stops = Counter(row.answer.stopped if row.answer else "failed" for row in rows)
    return RunFigures(
        name=run.name,
        folder=str(run.folder),
        summary={"method": summary.method, "unscored": summary.unscored_count, **summary.values},
        roles=_usage_by_role(rows),
        stops=[Stop(reason, count) for reason, count in stops.most_common()],
        by_hops=_groups(run.scored_rows, lambda question: question.hops),
        by_kind=_groups(run.scored_rows, lambda question: question.kind),
        conditions=_conditions(run.manifest),
        settings=dict(_flat(run.manifest.settings)),
        oracle=_oracle(rows, runs.candidates.get(run.name, {}), runs.scored_runs.scorer),
    )


def _oracle(rows: Sequence[SavedRow], candidates: Candidates, scorer: Scorer) -> dict[str, float]:
    with_gold = [row for row in rows if row.question.answers]
    if not candidates or not with_gold:
        return {}
    sets = {
        measure: [
            candidate_set(row, row.question, candidates[row.question.id], scorer, measure)
            for row in with_gold
        ]
        for measure in METRICS
    }
    return {measure: statistics.fmean(max(each.values) for each in every) for measure, every in sets.items()}


def _conditions(manifest: Manifest) -> dict[str, str]:
    start = manifest.last
    return {
        "method": manifest.method,
        "model": start.model,
        "adapter": start.adapter or "none",
        "trained for": ", ".join(start.trained_for) or "not known",
        "model fingerprint": manifest.model,
        "retriever": (start.searched_sources if manifest.searches else "") or "none",
        "corpus": (start.corpus or "unknown") if manifest.searches else "none",
        "retriever fingerprint": manifest.retriever or "none",
        "prompts": ", ".join(dict.fromkeys(manifest.prompts)) or "none",
        "token budget per question": f"{manifest.budget:,}" if manifest.budget else "no limit",
        "seed": str(manifest.seed),
        "started": start.started or "unknown",
        "source": start.git_commit or "unknown",
        "command": _command(start),
        "versions": ", ".join(f"{name} {version}" for name, version in start.versions.items()) or "unknown",
        "machine": _machine(start),
    }


def _command(start: Start) -> str:
    """Return the command line of a start, as a shell takes it."""
    program, *arguments = start.record.get("command") or [""]
    name = Path(program).name.replace("__main__.py", "corag")
    return shlex.join([name, *arguments]) if program else "unknown"


def _machine(start: Start) -> str:
    cores = f"{start.cores} cores" if start.cores else ""
    return ", ".join(filter(None, [start.platform, cores, *start.gpus])) or "unknown"


def _usage_by_role(rows: Sequence[SavedRow]) -> list[RoleUsage]:
    total: dict[str, TokenUsage] = {}
    for row in rows:
        for role, usage in row.usage.items():
            total[role] = total.get(role, TokenUsage()) + usage
    n = len(rows)
    return [
        RoleUsage(role, usage.calls / n, usage.prompt / n, usage.generated / n, usage.computed / n)
        for role, usage in total.items()
    ]


def _groups(scored_rows: Sequence[ScoredRow], key: Callable[[Question], Any]) -> list[Group]:
    members: dict[Any, list[Scores]] = {}
    for row, scores in scored_rows:
        if scores.is_scored:
            members.setdefault(key(row.question), []).append(scores)
    return [
        Group(
            str(name or ""),
            len(group),
            bootstrap_mean([scores.em for scores in group]),
            bootstrap_mean([scores.f1 for scores in group]),
        )
        for name, group in sorted(members.items())
    ]


def _flat(settings: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as dotted names and JSON."""
    if isinstance(settings, Mapping) and settings:
        for key, value in settings.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    else:
        yield name, json.dumps(settings, ensure_ascii=False)
