"""The columns of a results table, and from the rows of a run to the figures under them.

A column is declared once, in :data:`COLUMNS`: with that it stands in every table, in its JSON, in sweep.csv
and in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corag.core.runs.failures import Failures
from corag.core.runs.rows import SavedRow
from eval.scoring.rows import FURTHER_MEASURES, MEASURES, ScoredRow, measure_title
from eval.statistics.intervals import Interval, Spread, bootstrap_mean, interval_record


@dataclass(frozen=True)
class Column:
    """One figure of a run and all that is done with it.

    Attributes:
        name: what :attr:`Summary.values` calls it.
        heading: what a table calls it.
        value: returns the figure, given the rows of the run with their scores.
        render: writes the figure as a cell of a table.
        fields: what JSON and sweep.csv call it, or its parts.
        to_json: returns the values of these fields.
        estimable: whether a table writes "~" before it where some of the run's tokens were estimated.
    """

    name: str
    heading: str
    value: Callable[[Sequence[ScoredRow]], Any]
    render: Callable[[Any], str]
    fields: Sequence[str]
    to_json: Callable[[Any], Sequence[Any]]
    estimable: bool = False

    def record(self, value: Any) -> dict[str, Any]:
        """Return the fields that the column fills in JSON."""
        return dict(zip(self.fields, self.to_json(value), strict=True))

    def cell(self, summary: Summary) -> str:
        """Return the figure of a run as a cell of a table."""
        return "~" * (self.estimable and summary.has_estimates) + self.render(summary.values[self.name])

    def title(self, recall_at: int) -> str:
        """Return the heading, with the depth of recall."""
        return measure_title(self.name, recall_at) if self.name in MEASURES else self.heading


def _measure(name: str) -> Column:
    """Return the column of a measure's mean, over the questions that have it."""

    def mean(rows: Sequence[ScoredRow]) -> Interval | None:
        measures = [each.scores.measures for each in rows]
        return bootstrap_mean([values[name] for values in measures if name in values])

    return Column(
        name,
        MEASURES.get(name, name),
        mean,
        percent,
        (name, f"{name}_interval"),
        lambda value: list(interval_record(name, value).values()),
    )


def _count(name: str, count: Callable[[Sequence[ScoredRow]], int]) -> Column:
    return Column(name, name, count, str, (name,), lambda value: [value])


def _mean(
    name: str,
    value: Callable[[ScoredRow], int | None],
    *,
    heading: str = "",
    field: str = "",
    form: str = ".1f",
    estimable: bool = False,
) -> Column:
    """Return the column of a mean over the questions that have a value, without an interval, as of a cost."""
    return Column(
        name,
        heading or name,
        lambda rows: _average([count for each in rows if (count := value(each)) is not None]),
        lambda mean: format(mean, form),
        (field or name,),
        lambda mean: [round(mean, 2)],
        estimable,
    )


def _average(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def _median_and_p95(rows: Sequence[ScoredRow]) -> tuple[float, float] | None:
    # A row of 0 seconds was not timed, such as one that was made by hand.
    seconds = [each.row.seconds for each in rows if each.row.seconds]
    return (float(np.percentile(seconds, 50)), float(np.percentile(seconds, 95))) if seconds else None


def in_percent(value: Interval | Spread) -> tuple[str, str]:
    """Write a mean in percent, and its deviation over runs and interval, as far as it has them.

    >>> in_percent(Spread(0.25, 0.01, 3, 0.2, 0.3)), in_percent(Interval(0.25, None, None, 1))
    (('25.0', '± 1.0 [20.0, 30.0]'), ('25.0', ''))
    """
    deviation = value.deviation if isinstance(value, Spread) else None
    parts = [] if deviation is None else [f"± {100 * deviation:.1f}"]
    if value.low is not None and value.high is not None:
        parts.append(f"[{100 * value.low:.1f}, {100 * value.high:.1f}]")
    return f"{100 * value.mean:.1f}", " ".join(parts)


def percent(value: Interval | Spread | None) -> str:
    """Write the same as one text.

    >>> percent(Interval(0.25, 0.2, 0.3, 100)), percent(None)
    ('25.0 [20.0, 30.0]', '-')
    """
    return "-" if value is None else " ".join(in_percent(value)).rstrip()


COLUMNS: tuple[Column, ...] = (
    _count("n", len),
    _count("failed", lambda rows: sum(each.row.answer is None for each in rows)),
    _measure("em"),
    _measure("f1"),
    _measure("recall"),
    # Prompt plus generated, cached or not: what papers count (CoRAG, section 4.2).
    _mean(
        "tokens", lambda each: each.row.total_usage.total,
        field="tokens_per_question", form=",.0f", estimable=True,
    ),
    # What the engine really worked through.
    _mean(
        "computed_tokens", lambda each: each.row.total_usage.computed,
        heading="computed", form=",.0f", estimable=True,
    ),
    _mean("calls", lambda each: each.row.total_usage.calls),
    _mean("searches", lambda each: each.row.searches),
    # Over the answered questions only: a failed one has no number of steps.
    _mean("steps", lambda each: each.row.answer.steps if each.row.answer else None),
    # Of a question's wall time, failed ones included, while others were in flight.
    Column(
        "seconds", "s p50/p95", _median_and_p95,
        lambda both: "/".join(f"{value:.{1 if value < 100 else 0}f}" for value in both or ()),
        ("seconds_p50", "seconds_p95"),
        lambda both: [round(value, 4) for value in both] if both else [None, None],
    ),
)  # fmt: skip
"""What a table has for every run, from left to right, after its name."""

FURTHER_COLUMNS: tuple[Column, ...] = tuple(map(_measure, FURTHER_MEASURES))
"""Columns of measures that only some scorers, datasets or options have: a table of their own below."""

_BY_NAME = {column.name: column for column in (*COLUMNS, *FURTHER_COLUMNS)}
_NO_MEASURES = {column.name for column in COLUMNS} - MEASURES.keys()


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures: means over all questions, failed ones included, which score 0.

    Attributes:
        method: what the table calls the run.
        recall_at: recall is over so many passages.
        values: the figures by the names of their columns; of :data:`FURTHER_COLUMNS` those that the run has,
            and measures of rankings that were asked for.
        unscored_count: questions without gold answers, which are left out of EM and F1.
        has_estimates: whether some of the tokens were not counted, but estimated.
        thoughts_cut: thoughts of the model that reached the end of their budget.
        unasked_count: questions whose token budget did not allow a single call of the model.
        cut_count: others whose token budget ended or narrowed the method's work.
        computed_answers: answers that a rule computed ('--corag.compare rules').
        computed_right: how many of them are exactly right.
        reasons: how many of them failed for which reason, the commonest first.
        mean_collected: how many of the passages that recall is over an answered question had, on average.
    """

    method: str
    recall_at: int
    values: Mapping[str, Any]
    unscored_count: int = 0
    has_estimates: bool = False
    thoughts_cut: int = 0
    unasked_count: int = 0
    cut_count: int = 0
    computed_answers: int = 0
    computed_right: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    mean_collected: float = 0.0

    @property
    def n(self) -> int:
        """How many questions."""
        return int(self.values["n"])

    @property
    def failure_count(self) -> int:
        """How many of them have no answer."""
        return int(self.values["failed"])

    @property
    def is_empty(self) -> bool:
        """Whether no question was answered: each failed, or its token budget allowed no call."""
        return self.failure_count + self.unasked_count == self.n

    @property
    def recall(self) -> Interval | None:
        """Recall of the gold passages, over the questions that have any."""
        recall: Interval | None = self.values["recall"]
        return recall

    @property
    def tokens(self) -> float:
        """Tokens per question, prompt plus generated, cached or not."""
        return float(self.values["tokens"])

    @property
    def measures(self) -> dict[str, Interval | None]:
        """The means of all measures by name; None where no question has it."""
        return {name: value for name, value in self.values.items() if name not in _NO_MEASURES}

    @property
    def failures(self) -> Failures:
        """The failed questions by reason."""
        return Failures(self.n, self.reasons)

    @property
    def measured_on_fewer(self) -> dict[str, int]:
        """How many questions a measure is of, where that is fewer than it might be thought."""
        counts = {name: interval.n for name, interval in self.measures.items() if interval is not None}
        return {
            name: n
            for name, n in counts.items()
            if n < self.n - (self.unscored_count if name in ("em", "f1") else 0)
        }

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object: fractions, intervals as [low, high]."""
        record: dict[str, Any] = {"method": self.method, "recall_at": self.recall_at}
        for name, value in self.values.items():
            record |= (_BY_NAME.get(name) or _measure(name)).record(value)
        record |= {"unscored": self.unscored_count, "reasons": dict(self.reasons)}
        rare = {
            "estimated": self.has_estimates,
            "unasked": self.unasked_count,
            "cut_by_budget": self.cut_count,
            "computed_answers": self.computed_answers,
            "computed_right": self.computed_right,
            "thoughts_cut": self.thoughts_cut,
            "measured_on_fewer": self.measured_on_fewer,
        }
        return record | {name: value for name, value in rare.items() if value}


def flat_figures(summary: Summary) -> dict[str, Any]:
    """Return the same with each interval as two fields, ``em_low`` and ``em_high`` of EM."""
    record: dict[str, Any] = {}
    for name, value in summary.to_json().items():
        measure = name.removesuffix("_interval")
        if measure == name:
            record[name] = value
        else:
            record[f"{measure}_low"], record[f"{measure}_high"] = value or (None, None)
    return record


def summarise(name: str, rows: Sequence[ScoredRow], recall_at: int = 15) -> Summary:
    """Return a run's line of the table.

    Args:
        name: what the table calls the run.
        rows: all of its rows, with their scores.
        recall_at: what recall was scored at.
    """
    values = {column.name: column.value(rows) for column in COLUMNS}
    rankings = dict.fromkeys(name for each in rows for name in each.scores.further if name not in _BY_NAME)
    columns = [*FURTHER_COLUMNS, *map(_measure, rankings)]
    further = {column.name: column.value(rows) for column in columns}
    computed_scores = [each.scores.em for each in rows if each.row.further.get("comparison")]
    return Summary(
        name,
        recall_at,
        values | {name: mean for name, mean in further.items() if mean is not None},
        unscored_count=sum(not each.row.question.answers for each in rows),
        computed_answers=len(computed_scores),
        computed_right=int(sum(computed_scores)),
        unasked_count=sum(_is_cut(each.row) and not each.row.total_usage.calls for each in rows),
        cut_count=sum(_is_cut(each.row) and each.row.total_usage.calls > 0 for each in rows),
        thoughts_cut=sum(each.row.thoughts_cut for each in rows),
        has_estimates=any(each.row.total_usage.estimated for each in rows),
        reasons=Failures.count(each.row.error for each in rows if each.row.answer is None).reasons,
        mean_collected=_average(
            [min(len(each.row.passage_ids), recall_at) for each in rows if each.row.answer is not None]
        ),
    )


def _is_cut(row: SavedRow) -> bool:
    return row.answer is not None and row.answer.stopped == "budget"
