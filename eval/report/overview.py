"""What a report says about whole runs: figures, tests against every baseline, groups, conditions.

The dataclasses are the page's data: their fields, as JSON, are what the scripts in ``assets/`` read.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.runs.folder import read_attempts
from core.runs.manifest import Manifest, Start
from core.runs.rows import SavedRow
from core.types import CandidateAnswer, Question, TokenUsage
from eval.scoring.rows import FURTHER, Scores, score_row
from eval.scoring.scorers import Scorer, scorer_title
from eval.statistics.comparisons import against_each_other
from eval.statistics.intervals import Interval, bootstrap_mean
from eval.statistics.scaling import pareto_set
from eval.tables.ceiling import METRICS, candidates_in, choice_of
from eval.tables.table import Summary, summarise

SHOWN_MEASURES = ("em", "f1")


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk.

    Attributes:
        name: what the report calls it.
        folder: where it lies.
        corpus: what its index was built from; "" if that is not known.
        manifest: its settings and starts.
        rows: by question id, without steps and what its method adds to answers: many runs fit into memory.
        candidates: by question id, the texts of the answers among which the method chose.
    """

    name: str
    folder: Path
    corpus: str
    manifest: Manifest
    rows: Mapping[str, SavedRow]
    candidates: Mapping[str, Sequence[CandidateAnswer]] = field(default_factory=dict)


def load_run(name: str, folder: Path, corpus: str = "") -> Run:
    """Read a run. Raises :class:`core.errors.DataError` if the folder is not one."""
    manifest = Manifest.read(folder)
    rows, candidates = {}, {}
    for row in read_attempts(folder):
        rows[row.question.id] = _light(row)
        candidates[row.question.id] = candidates_in(row, manifest)
    several = any(len(found) > 1 for found in candidates.values())
    return Run(name, folder, corpus, manifest, rows, candidates if several else {})


def _light(row: SavedRow) -> SavedRow:
    # The steps are by far the most of a row.
    return replace(row, answer=row.answer and replace(row.answer, further={}), steps_json=b"[]")


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
        summary: its line of the table.
        seconds: median per question, waiting included.
        roles: where the tokens went.
        stops: why the method stopped, the most frequent reason first.
        by_hops: its scores by number of hops.
        by_kind: its scores by type of question.
        conditions: what must be known beside the figures, in words.
        settings: everything that the results depend on, as dotted names and JSON values.
        oracle: by measure, what the best of its candidates would score; {} if it does not keep several.
    """

    name: str
    folder: str
    summary: Summary
    seconds: float
    roles: Sequence[RoleUsage]
    stops: Sequence[Stop]
    by_hops: Sequence[Group]
    by_kind: Sequence[Group]
    conditions: Mapping[str, str]
    settings: Mapping[str, str]
    oracle: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A run minus the baseline in one measure.

    ``adjusted``: the p-value by Holm's rule over all tests with this baseline. ``detectable``: the smallest
    true difference that so many questions are likely to show.
    """

    interval: Interval
    p_value: float
    adjusted: float
    detectable: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that a report shows at once.

    Attributes:
        runs: the runs in the order given.
        questions: the question file of the first run.
        dataset: its dataset.
        scorer: the scorer's title.
        n: how many questions all runs have.
        left_out: questions that some run lacks.
        recall_at: recall is over so many passages.
        further: titles of the further measures that some run has.
        differences: by measure, baseline and run (indices of ``runs``); None for the baseline itself.
        frontier: by measure, the runs that no other run beats at equal or fewer tokens.
        baseline: the run that the page opens with as the baseline (an index of ``runs``).
    """

    runs: Sequence[RunFigures]
    questions: str
    dataset: str
    scorer: str
    n: int
    left_out: int
    recall_at: int
    further: Mapping[str, str]
    differences: Mapping[str, Sequence[Sequence[Difference | None]]]
    frontier: Mapping[str, Sequence[int]]
    baseline: int = 0


def common_rows(runs: Sequence[Run], questions: Sequence[str]) -> list[list[SavedRow]]:
    """Return each run's rows of these questions, with the gold answers of the first run.

    A run may be older than the aliases of another: scored by its own gold answers it would seem worse.
    """
    asked = runs[0].rows
    return [[replace(run.rows[name], question=asked[name].question) for name in questions] for run in runs]


def describe(
    runs: Sequence[Run], questions: Sequence[str], scorer: Scorer, recall_at: int
) -> tuple[Overview, list[list[Scores]]]:
    """Return the overview of some runs on questions that all have, and by run every question's scores."""
    every = common_rows(runs, questions)
    scores = [
        [score_row(row, scorer, recall_at, searches=run.manifest.searches) for row in rows]
        for run, rows in zip(runs, every, strict=True)
    ]
    figures = [
        _figures(run, rows, found, scorer, recall_at)
        for run, rows, found in zip(runs, every, scores, strict=True)
    ]
    overview = Overview(
        runs=figures,
        questions=runs[0].manifest.last.questions,
        dataset=runs[0].manifest.dataset,
        scorer=scorer_title(scorer, [row.question for row in every[0]], runs[0].manifest.last.aliases),
        n=len(questions),
        left_out=len({name for run in runs for name in run.rows}) - len(questions),
        recall_at=recall_at,
        further={
            name: title
            for name, title in FURTHER.items()
            if any(name in each.summary.further for each in figures)
        },
        differences=differences_to_baselines([run.name for run in runs], questions, scores),
        frontier={measure: _frontier(figures, measure) for measure in SHOWN_MEASURES},
    )
    return overview, scores


def differences_to_baselines(
    names: Sequence[str], questions: Sequence[str], scores: Sequence[Sequence[Scores]]
) -> dict[str, list[list[Difference | None]]]:
    """Test every run against every other one in EM and F1: a reader of the page may choose any baseline.

    Each baseline's tests are those of 'corag table --baseline'. Questions without gold answers are left out;
    if there are no others, or no other run, nothing is tested.
    """
    scored = [place for place, score in enumerate(scores[0]) if score.scored]
    measured = {
        name: {
            measure: {questions[place]: getattr(run[place], measure) for place in scored}
            for measure in SHOWN_MEASURES
        }
        for name, run in zip(names, scores, strict=True)
    }
    differences: dict[str, list[list[Difference | None]]] = {
        measure: [[None] * len(names) for _ in names] for measure in SHOWN_MEASURES
    }
    for baseline, against in (against_each_other(measured) if scored and len(names) > 1 else {}).items():
        for one in against:
            test = one.comparison
            found = Difference(test.difference, test.p_value, one.p_holm, test.detectable)
            differences[one.measure][names.index(baseline)][names.index(one.run)] = found
    return differences


def _frontier(figures: Sequence[RunFigures], measure: str) -> list[int]:
    means: list[Interval | None] = [getattr(each.summary, measure) for each in figures]
    return pareto_set(
        [each.summary.tokens for each in figures], [mean.mean if mean else 0.0 for mean in means]
    )


def _figures(
    run: Run, rows: Sequence[SavedRow], scores: Sequence[Scores], scorer: Scorer, recall_at: int
) -> RunFigures:
    stopped = Counter(row.answer.stopped if row.answer else "failed" for row in rows)
    return RunFigures(
        name=run.name,
        folder=str(run.folder),
        summary=summarise(run.name, rows, scorer, recall_at=recall_at, searches=run.manifest.searches),
        # The median: a few questions that waited long for others would draw the mean up.
        seconds=statistics.median(row.seconds for row in rows),
        roles=_usage_by_role(rows),
        stops=[Stop(reason, count) for reason, count in stopped.most_common()],
        by_hops=_groups(rows, scores, lambda question: question.hops),
        by_kind=_groups(rows, scores, lambda question: question.kind),
        conditions=_conditions(run),
        settings=dict(_flat(run.manifest.settings)),
        oracle=_oracle(run, rows, scorer),
    )


def _oracle(run: Run, rows: Sequence[SavedRow], scorer: Scorer) -> dict[str, float]:
    scored = [row for row in rows if row.question.answers]
    if not run.candidates or not scored:
        return {}
    sets = {
        measure: [
            choice_of(row, row.question, run.candidates[row.question.id], scorer, measure) for row in scored
        ]
        for measure in METRICS
    }
    return {measure: statistics.fmean(max(each.values) for each in found) for measure, found in sets.items()}


def _conditions(run: Run) -> dict[str, str]:
    made, start = run.manifest, run.manifest.last
    return {
        "method": made.method,
        "model": start.model,
        "adapter": start.adapter or "none",
        "model fingerprint": made.model,
        "retriever": (start.searched if made.searches else "") or "none",
        "corpus": (run.corpus or "unknown") if made.searches else "none",
        "retriever fingerprint": made.retriever or "none",
        "prompts": ", ".join(dict.fromkeys(made.prompts)) or "none",
        "token budget per question": f"{made.budget:,}" if made.budget else "no limit",
        "seed": str(made.seed),
        "started": start.started or "unknown",
        "source": start.git_commit or "unknown",
        "versions": ", ".join(f"{name} {version}" for name, version in start.versions.items()) or "unknown",
        "machine": _machine(start),
    }


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


def _groups(
    rows: Sequence[SavedRow], scores: Sequence[Scores], key: Callable[[Question], Any]
) -> list[Group]:
    members: dict[Any, list[Scores]] = {}
    for row, score in zip(rows, scores, strict=True):
        if score.scored:
            members.setdefault(key(row.question), []).append(score)
    return [
        Group(
            str(name or ""),
            len(found),
            bootstrap_mean([score.em for score in found]),
            bootstrap_mean([score.f1 for score in found]),
        )
        for name, found in sorted(members.items())
    ]


def _flat(settings: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as dotted names and JSON."""
    if isinstance(settings, Mapping) and settings:
        for key, value in settings.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    else:
        yield name, json.dumps(settings, ensure_ascii=False)
