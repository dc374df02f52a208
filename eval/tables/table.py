"""From the rows of a run to one line of a results table, with error bars and everything that a reader must
know beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from core.runs.rows import SavedRow
from eval.scoring.retrieval_metrics import (
    answer_recall,
    page_recall,
    pages_of,
    r_precision,
    supporting_recall,
    with_provenance,
)
from eval.scoring.scorers import NOTHING_RIGHT, Scorer
from eval.statistics.intervals import Interval, bootstrap_mean

Texts = Callable[[Sequence[str]], Sequence[str]]

# What a scorer or an option adds to a table, by the name that it has in JSON.
FURTHER = {
    "accuracy": "accuracy",
    "r_precision": "R-precision",
    "kilt_accuracy": "KILT-accuracy",
    "kilt_em": "KILT-EM",
    "kilt_f1": "KILT-F1",
    "answer_recall": "answer recall",
}


@dataclass(frozen=True, slots=True)
class Scores:
    """One question's scores as fractions; a failed question scores 0.

    ``recall`` is None without gold passages.

    ``further``: measures of :data:`FURTHER`. ``scored``: whether there are gold answers; else EM and F1 mean
    nothing.
    """

    em: float
    f1: float
    recall: float | None
    further: Mapping[str, float] = field(default_factory=dict)
    scored: bool = True

    @property
    def measured(self) -> dict[str, float]:
        """All that was measured, by name: "em", "f1", "recall" and those of :data:`FURTHER`."""
        values = {"em": self.em, "f1": self.f1} if self.scored else {}
        return values | ({} if self.recall is None else {"recall": self.recall}) | dict(self.further)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures.

    Means are over all ``n`` questions, failed ones included; tokens, calls and searches are per question.

    But ``steps`` is of those that were answered, and a measure may be of those that have it: gold passages,
    say.

    ``tokens``: prompt plus generated, cached or not; ``computed_tokens``: what the engine really worked
    through. ``unscored`` questions have no gold answers and are left out of EM and F1.
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

    @property
    def measured(self) -> dict[str, Interval | None]:
        """The means by name, as :attr:`Scores.measured` has them."""
        return {"em": self.em, "f1": self.f1, "recall": self.recall, **self.further}

    @property
    def measured_on_fewer(self) -> dict[str, int]:
        """The numbers of questions that further measures are of, where those are fewer than the answers
        scored.
        """
        found = {name: interval.n for name, interval in self.measured.items() if interval is not None}
        return {
            name: n
            for name, n in found.items()
            if n < self.n - (self.unscored if name in ("em", "f1") else 0)
        }


def score_row(
    row: SavedRow, scorer: Scorer, recall_at: int, *, searches: bool = True, texts: Texts | None = None
) -> Scores:
    """Score one row of a run.

    ``searches``: whether the method searches at all; else there is no recall. ``texts`` returns the texts of
    passages by id, for looking for the answer in the first ``recall_at`` different ones; without it that is
    not done.
    """
    gold, pages, failed = row.question.answers, row.question.pages, row.answer is None
    # KILT counts an answer that no page bears out as one whose pages were not found.
    unproven = scorer.name == "kilt" and bool(gold) and not row.question.supporting
    item = NOTHING_RIGHT if failed or not gold else scorer.score(row.text, gold)
    further = {}
    if scorer.accuracy is not None and gold:
        further["accuracy"] = 0.0 if failed else scorer.accuracy_of(row.text, gold)
    recall = None
    if searches and (pages or unproven):
        found = pages_of(row.passage_ids)
        recall = page_recall(found, pages, recall_at)
        further |= with_provenance({**further, "em": item.em, "f1": item.f1}, r_precision(found, pages))
    elif searches:
        recall = supporting_recall(row.passage_ids, row.question.supporting, recall_at)
    if searches and texts is not None:
        held = answer_recall(texts(list(dict.fromkeys(row.passage_ids))[:recall_at]), gold)
        further |= {} if held is None else {"answer_recall": held}
    return Scores(item.em, item.f1, recall, further, bool(gold))


def summarise(
    method: str,
    rows: Sequence[SavedRow],
    scorer: Scorer,
    *,
    recall_at: int = 15,
    searches: bool = True,
    texts: Texts | None = None,
) -> Summary:
    """Turn a run's rows into a line of the table. ``searches`` and ``texts`` as in :func:`score_row`."""
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
    )


def _further(scores: Sequence[Scores]) -> dict[str, Interval]:
    """Average each further measure over the questions that have it."""
    names = dict.fromkeys(name for score in scores for name in score.further)
    means = {name: bootstrap_mean([s.further[name] for s in scores if name in s.further]) for name in names}
    return {name: mean for name, mean in means.items() if mean is not None}


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


HEADINGS = ("method", "n", "failed", "EM", "F1", "recall", "tokens", "computed", "calls", "searches", "steps")


def cells(summary: Summary) -> tuple[str, ...]:
    """Write a summary as the cells under :data:`HEADINGS`.

    EM, F1 and recall in percent with 95% bootstrap intervals.
    """
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
    record = {
        name: value
        for name, value in asdict(summary).items()
        if name not in ("em", "f1", "recall", "further")
    }
    for name, interval in summary.measured.items():
        record |= interval_record(name, interval)
    if summary.measured_on_fewer:
        record["measured_on_fewer"] = summary.measured_on_fewer
    for name in ("tokens", "computed_tokens", "calls", "searches", "steps"):
        record[name] = round(record[name], 2)
    record["tokens_per_question"] = record.pop("tokens")
    return record


def interval_record(name: str, interval: Interval | None) -> dict[str, Any]:
    """Write a mean and its interval as two fields of a JSON object: fractions, the interval as [low, high].

    >>> interval_record("em", Interval(0.25, 0.2, 0.3, 100))
    {'em': 0.25, 'em_interval': [0.2, 0.3]}
    """
    if interval is None:
        return {name: None, f"{name}_interval": None}
    bounded = interval.low is not None and interval.high is not None
    bounds = [round(interval.low or 0.0, 4), round(interval.high or 0.0, 4)] if bounded else None
    return {name: round(interval.mean, 4), f"{name}_interval": bounds}
