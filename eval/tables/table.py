"""From the rows of a run to one line of a results table, with error bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from core.runs.failures import Failures
from core.runs.rows import SavedRow
from eval.scoring.rows import PassageTexts, Scores, score_row
from eval.scoring.scorers import Scorer
from eval.statistics.intervals import Interval, bootstrap_mean, interval_record
from eval.tables.ledger import Waiting


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures: means over all questions, failed ones included.

    Attributes:
        method: what the table calls the run.
        n: how many questions.
        failed: how many of them have no answer; these score 0.
        first_error: why the first of them failed.
        reasons: how many of them failed for which reason, the commonest first.
        em: exact match; None if no question has gold answers.
        f1: F1 of the answer's tokens, likewise.
        recall: of the gold passages, over the questions that have any.
        recall_at: recall is over so many passages.
        tokens: per question, prompt plus generated, cached or not (CoRAG, section 4.2).
        computed_tokens: per question, what the engine really worked through.
        calls: of the model, per question.
        searches: per question.
        steps: per question that was answered.
        further: means of further measures, each over the questions that have it.
        unscored: questions without gold answers, which are left out of EM and F1.
        seconds: p50 and p95 of the wall time of a question, failed ones included, while others were in
            flight; None if no row says how long it took.
        estimated: whether some of the tokens were not counted, but estimated.
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
    further: Mapping[str, Interval] = field(default_factory=dict)
    unscored: int = 0
    seconds: tuple[float, float] | None = None
    estimated: bool = False
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def failures(self) -> Failures:
        """The failed questions by reason."""
        return Failures(self.n, self.reasons)

    @property
    def measured(self) -> dict[str, Interval | None]:
        """The means by name, as :attr:`Scores.measured` has them."""
        return {"em": self.em, "f1": self.f1, "recall": self.recall, **self.further}

    @property
    def measured_on_fewer(self) -> dict[str, int]:
        """How many questions a measure is of, where that is fewer than it might be thought."""
        found = {name: interval.n for name, interval in self.measured.items() if interval is not None}
        return {
            name: n
            for name, n in found.items()
            if n < self.n - (self.unscored if name in ("em", "f1") else 0)
        }


def summarise(
    method: str,
    rows: Sequence[SavedRow],
    scorer: Scorer,
    *,
    recall_at: int = 15,
    searches: bool = True,
    texts: PassageTexts | None = None,
) -> Summary:
    """Turn a run's rows into a line of the table; other arguments as in :func:`score_row`."""
    scores = [score_row(row, scorer, recall_at, searches=searches, texts=texts) for row in rows]
    scored = [score for score in scores if score.scored]
    usages = [row.total_usage for row in rows]
    failed = [row for row in rows if row.answer is None]
    return Summary(
        method=method,
        n=len(rows),
        failed=len(failed),
        first_error=failed[0].error if failed else "",
        em=bootstrap_mean([score.em for score in scored]),
        f1=bootstrap_mean([score.f1 for score in scored]),
        recall=bootstrap_mean([score.recall for score in scores if score.recall is not None]),
        recall_at=recall_at,
        tokens=_mean([usage.total for usage in usages]),
        computed_tokens=_mean([usage.computed for usage in usages]),
        calls=_mean([usage.calls for usage in usages]),
        searches=_mean([row.searches for row in rows]),
        steps=_mean([row.answer.steps for row in rows if row.answer]),
        further=_further(scores),
        unscored=len(scores) - len(scored),
        seconds=_median_and_p95([row.seconds for row in rows if row.seconds]),
        reasons=Failures.of(row.error for row in failed).reasons,
        estimated=any(usage.estimated for usage in usages),
    )


def _further(scores: Sequence[Scores]) -> dict[str, Interval]:
    """Average each further measure over the questions that have it."""
    names = dict.fromkeys(name for score in scores for name in score.further)
    means = {name: bootstrap_mean([s.further[name] for s in scores if name in s.further]) for name in names}
    return {name: mean for name, mean in means.items() if mean is not None}


def _mean(values: Sequence[int]) -> float:  # of costs: they need no interval, and may be of no question
    return sum(values) / len(values) if values else 0.0


def _median_and_p95(seconds: Sequence[float]) -> tuple[float, float] | None:
    if not seconds:
        return None
    waiting = Waiting.of(len(seconds), seconds)
    return waiting.p50, waiting.p95


HEADINGS = (
    "method", "n", "failed", "EM", "F1", "recall", "tokens", "computed", "calls", "searches", "steps",
    "s p50/p95",
)  # fmt: skip


def cells(summary: Summary) -> tuple[str, ...]:
    """Write a summary as the cells under :data:`HEADINGS`.

    EM, F1 and recall in percent with 95% intervals; the last is empty where nothing is known.
    """
    return (
        summary.method,
        str(summary.n),
        str(summary.failed),
        percent(summary.em),
        percent(summary.f1),
        percent(summary.recall),
        f"{'~' * summary.estimated}{summary.tokens:,.0f}",
        f"{'~' * summary.estimated}{summary.computed_tokens:,.0f}",
        f"{summary.calls:.1f}",
        f"{summary.searches:.1f}",
        f"{summary.steps:.1f}",
        "/".join(f"{value:.{1 if value < 100 else 0}f}" for value in summary.seconds or ()),
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
    record = {
        name: value
        for name, value in asdict(summary).items()
        if name not in ("em", "f1", "recall", "further", "seconds") and (name != "estimated" or value)
    }
    for name, interval in summary.measured.items():
        record |= interval_record(name, interval)
    if summary.measured_on_fewer:
        record["measured_on_fewer"] = summary.measured_on_fewer
    for name in ("tokens", "computed_tokens", "calls", "searches", "steps"):
        record[name] = round(record[name], 2)
    record["tokens_per_question"] = record.pop("tokens")
    p50, p95 = summary.seconds or (None, None)
    record |= {"seconds_p50": p50 and round(p50, 4), "seconds_p95": p95 and round(p95, 4)}
    return record
