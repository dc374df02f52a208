"""What a report says about whole runs: figures, tests against every baseline, groups of questions, conditions."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.types import Question, TokenUsage
from eval.comparing import against_baseline
from eval.report.runs import Run
from eval.scaling import pareto_set
from eval.scorers import Scorer, scorer_title
from eval.statistics import Interval, bootstrap_mean
from eval.table import FURTHER, Record, Scores, Summary, score_record, summarise

MEASURES = ("em", "f1")


@dataclass(frozen=True, slots=True)
class Group:
    """The questions of one kind or number of hops, and how a run did on them; ``name`` is "" if the dataset does not say."""

    name: str
    n: int
    em: Interval | None
    f1: Interval | None


@dataclass(frozen=True, slots=True)
class RoleUsage:
    """Mean tokens per question that went to one role: prompt and generated, and what of both was really computed."""

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

    ``seconds``: median per question, waiting included. ``conditions``: what must be known beside the figures, in words;
    ``settings``: everything that the results depend on, flat, values as JSON.
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


@dataclass(frozen=True, slots=True)
class Difference:
    """A run minus the baseline in one measure; ``adjusted``: the p-value by Holm's rule over all tests with this baseline.

    ``detectable``: the smallest true difference that so many questions are likely to show.
    """

    interval: Interval
    p_value: float
    adjusted: float
    detectable: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that a report shows at once.

    ``differences``: by measure, baseline and run (indices of ``runs``); None for the baseline itself. ``frontier``: by measure, the
    runs that no other run beats at equal or fewer tokens. ``left_out``: questions that some run lacks. ``further``: titles of the
    further measures that some run has.
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


def common_records(runs: Sequence[Run], questions: Sequence[str]) -> list[list[Record]]:
    """Return each run's rows of these questions, with the gold answers of the first run: another may be older than its aliases."""
    asked = runs[0].rows
    return [[{**run.rows[name], "question": asked[name]["question"]} for name in questions] for run in runs]


def describe(
    runs: Sequence[Run], questions: Sequence[str], scorer: Scorer, recall_at: int
) -> tuple[Overview, list[list[Scores]]]:
    """Return the overview of some runs on questions that all of them have, and the scores of every question by run."""
    records = common_records(runs, questions)
    scores = [
        [score_record(record, scorer, recall_at, searches=run.searches) for record in rows]
        for run, rows in zip(runs, records, strict=True)
    ]
    figures = [
        _figures(run, rows, found, scorer, recall_at) for run, rows, found in zip(runs, records, scores, strict=True)
    ]
    overview = Overview(
        runs=figures,
        questions=runs[0].start["questions"],
        dataset=runs[0].settings["questions"]["dataset"],
        scorer=scorer_title(scorer, [Question(**record["question"]) for record in records[0]]),
        n=len(questions),
        left_out=len({name for run in runs for name in run.rows}) - len(questions),
        recall_at=recall_at,
        further={
            name: title for name, title in FURTHER.items() if any(name in each.summary.further for each in figures)
        },
        differences=differences_to_baselines([run.name for run in runs], questions, scores),
        frontier={measure: _frontier(figures, measure) for measure in MEASURES},
    )
    return overview, scores


def differences_to_baselines(
    names: Sequence[str], questions: Sequence[str], scores: Sequence[Sequence[Scores]]
) -> dict[str, list[list[Difference | None]]]:
    """Test every run against every other one, as 'corag table --baseline' does for one baseline with EM and F1.

    Questions without gold answers are left out; if there are no others, or no other run, nothing is tested.
    """
    scored = [place for place, score in enumerate(scores[0]) if score.scored]
    measured = {
        name: {measure: {questions[place]: getattr(run[place], measure) for place in scored} for measure in MEASURES}
        for name, run in zip(names, scores, strict=True)
    }
    differences: dict[str, list[list[Difference | None]]] = {
        measure: [[None] * len(names) for _ in names] for measure in MEASURES
    }
    for base, baseline in enumerate(names if scored and len(names) > 1 else ()):
        for one in against_baseline(measured, baseline):
            test = one.comparison
            found = Difference(test.difference, test.p_value, one.p_holm, test.detectable)
            differences[one.measure][base][names.index(one.run)] = found
    return differences


def _frontier(figures: Sequence[RunFigures], measure: str) -> list[int]:
    means: list[Interval | None] = [getattr(each.summary, measure) for each in figures]
    return pareto_set([each.summary.tokens for each in figures], [mean.mean if mean else 0.0 for mean in means])


def _figures(
    run: Run, records: Sequence[Record], scores: Sequence[Scores], scorer: Scorer, recall_at: int
) -> RunFigures:
    answers = [record["answer"] for record in records]
    stopped = Counter("failed" if answer is None else answer["stopped"] for answer in answers)
    return RunFigures(
        name=run.name,
        folder=str(run.folder),
        summary=summarise(run.name, records, scorer, recall_at=recall_at, searches=run.searches),
        seconds=statistics.median(record["seconds"] for record in records),
        roles=_usage_by_role(records),
        stops=[Stop(reason, count) for reason, count in stopped.most_common()],
        by_hops=_groups(records, scores, lambda question: question["hops"] or 0),
        by_kind=_groups(records, scores, lambda question: question["kind"]),
        conditions=_conditions(run),
        settings=dict(_flat(run.settings)),
    )


def _conditions(run: Run) -> dict[str, str]:
    model, retriever = run.start["model"], run.start["retriever"]
    searched = ", ".join(retriever["index"] or retriever["url"]) if run.searches else ""
    versions = run.start.get("versions", {})
    return {
        "method": run.settings["method"],
        "model": model["name"],
        "adapter": model.get("adapter") or "none",
        "model fingerprint": run.settings["model"],
        "retriever": searched or "none",
        "corpus": (run.corpus or "unknown") if run.searches else "none",
        "retriever fingerprint": run.settings["retriever"] or "none",
        "prompts": ", ".join(dict.fromkeys(run.settings["prompts"])) or "none",
        "token budget per question": f"{run.settings['budget']:,}" if run.settings["budget"] else "no limit",
        "seed": str(run.settings["seed"]),
        "started": run.start.get("started", "unknown"),
        "source": run.start.get("git_commit") or "unknown",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()) or "unknown",
        "machine": _machine(run.start.get("machine", {})),
    }


def _machine(machine: Mapping[str, Any]) -> str:
    parts = [machine.get("platform", ""), f"{machine['cores']} cores" if machine.get("cores") else ""]
    return ", ".join(filter(None, [*parts, *machine.get("gpus", [])])) or "unknown"


def _usage_by_role(records: Sequence[Record]) -> list[RoleUsage]:
    total: dict[str, TokenUsage] = {}
    for record in records:
        for role, usage in record["usage"].items():
            total[role] = total.get(role, TokenUsage()) + TokenUsage(**usage)
    n = len(records)
    return [
        RoleUsage(role, usage.calls / n, usage.prompt / n, usage.generated / n, usage.computed / n)
        for role, usage in total.items()
    ]


def _groups(
    records: Sequence[Record], scores: Sequence[Scores], key: Callable[[Mapping[str, Any]], Any]
) -> list[Group]:
    members: dict[Any, list[Scores]] = {}
    for record, score in zip(records, scores, strict=True):
        if score.scored:
            members.setdefault(key(record["question"]), []).append(score)
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
