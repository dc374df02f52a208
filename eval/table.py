"""From the rows of a run to one line of a results table, with error bars and everything that a reader must know beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.records import usage_of
from eval.retrieval_metrics import supporting_recall
from eval.scorers import Scorer
from eval.statistics import Interval, bootstrap_mean

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scores:
    """One question's scores as fractions; a failed question scores 0. ``recall`` is None without gold passages."""

    em: float
    f1: float
    recall: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures. Means are over all ``n`` questions, failed ones included; tokens, calls and searches are per question.

    ``tokens``: prompt plus generated, cached or not; ``computed_tokens``: what the engine really worked through.
    """

    method: str
    n: int
    failed: int
    first_error: str
    em: Interval | None
    f1: Interval | None
    recall: Interval | None
    recall_at: int
    tokens: float
    computed_tokens: float
    calls: float
    searches: float
    steps: float


def score_record(record: Record, scorer: Scorer, recall_at: int, *, searches: bool = True) -> Scores:
    """Score one row of a run. ``searches``: whether the method searches at all; else there is no recall."""
    question, answer = record["question"], record["answer"]
    supporting = question["supporting"] if searches else ()
    if answer is None:
        return Scores(0.0, 0.0, 0.0 if supporting else None)
    item = scorer.score(answer["text"], question["answers"])
    return Scores(item.em, item.f1, supporting_recall(answer["passage_ids"], supporting, recall_at))


def summarise(
    method: str, records: Sequence[Record], scorer: Scorer, *, recall_at: int = 15, searches: bool = True
) -> Summary:
    """Turn a run's rows into a line of the table. ``searches``: whether the method searches at all."""
    scores = [score_record(record, scorer, recall_at, searches=searches) for record in records]
    usages = [usage_of(record) for record in records]
    searched = [sum(step["kind"] == "search" for step in record["steps"]) for record in records]
    steps = [record["answer"]["steps"] for record in records if record["answer"] is not None]
    return Summary(
        method=method,
        n=len(records),
        failed=sum(record["answer"] is None for record in records),
        first_error=next((record["error"] for record in records if record["answer"] is None), ""),
        em=bootstrap_mean([score.em for score in scores]),
        f1=bootstrap_mean([score.f1 for score in scores]),
        recall=bootstrap_mean([score.recall for score in scores if score.recall is not None]),
        recall_at=recall_at,
        tokens=_mean([usage.total for usage in usages]),
        computed_tokens=_mean([usage.computed for usage in usages]),
        calls=_mean([usage.calls for usage in usages]),
        searches=_mean(searched),
        steps=_mean(steps),
    )


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


HEADINGS = ("method", "n", "failed", "EM", "F1", "recall", "tokens", "computed", "calls", "searches", "steps")


def cells(summary: Summary) -> tuple[str, ...]:
    """Write a summary as the cells under :data:`HEADINGS`; EM, F1 and recall in percent with 95% bootstrap intervals."""
    return (
        summary.method,
        str(summary.n),
        str(summary.failed),
        percent(summary.em),
        percent(summary.f1),
        percent(summary.recall),
        f"{summary.tokens:,.0f}",
        f"{summary.computed_tokens:,.0f}",
        f"{summary.calls:.1f}",
        f"{summary.searches:.1f}",
        f"{summary.steps:.1f}",
    )


def percent(interval: Interval | None) -> str:
    """Write an interval in percent.

    >>> percent(Interval(0.25, 0.2, 0.3, 100))
    '25.0 [20.0, 30.0]'
    """
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{100 * interval.mean:.1f}"
    return f"{100 * interval.mean:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def json_record(summary: Summary) -> dict[str, Any]:
    """Write a summary as a JSON object: fractions, intervals as [low, high]."""
    record = asdict(summary)
    for name in ("em", "f1", "recall"):
        interval = record.pop(name)
        record[name] = None if interval is None else round(interval["mean"], 4)
        record[f"{name}_interval"] = (
            None
            if interval is None or interval["low"] is None
            else [round(interval["low"], 4), round(interval["high"], 4)]
        )
    for name in ("tokens", "computed_tokens", "calls", "searches", "steps"):
        record[name] = round(record[name], 2)
    record["tokens_per_question"] = record.pop("tokens")
    return record
