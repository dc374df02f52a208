"""A measure against tokens per question: a point with its interval for each run, a curve for each method.

An SVG whose colours are the page's, so it follows light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eval.report.markup import Markup, element
from eval.scoring.rows import measure_title
from eval.statistics.intervals import Interval
from eval.tables.columns import percent
from eval.tables.results import ResultsTable
from eval.tables.ticks import tick_label, tick_places

COLOURS = 7
"""``run-colour-0`` and so on in the style."""
# Runs are told apart by shape and colour, so that neither is needed.
_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.6-4.6h9.2v9.2h-9.2z",
    "M0-6L5.6 4.6H-5.6z",
    "M0-6.4L6.4 0 0 6.4-6.4 0z",
    "M0 6L5.6-4.6H-5.6z",
    "M-2-5.6h4v3.6h3.6v4h-3.6v3.6h-4v-3.6h-3.6v-4h3.6z",
)
_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 24, 28, 46
_TOPS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class _Axes:
    """Ticks of tokens on a log scale, and scores from 0 to ``top``.

    ``from_zero``: what spends nothing, which has no place on such a scale, stands at the first tick.
    """

    ticks: Sequence[float]
    top: float
    from_zero: bool

    def across(self, tokens: float) -> float:
        least, most = self.ticks[0], self.ticks[-1]
        share = math.log(max(tokens, least) / least) / math.log(most / least)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def up(self, score: float) -> float:
        return round(_TOP + (1 - score / self.top) * (_HEIGHT - _TOP - _BOTTOM), 1)

    def draw(self) -> Iterator[Markup]:
        for step in range(5):
            score = self.top * step / 4
            y, text = self.up(score), f"{100 * score:.{int(self.top < 0.4)}f}"
            line = f"M{_LEFT} {y}H{_WIDTH - _RIGHT}"
            yield element("path", class_="grid" if step else "axis", d=line)
            yield element("text", text, class_="tick end", x=_LEFT - 8, y=y + 4)
        for number, tick in enumerate(self.ticks):
            x, text = self.across(tick), "0" if self.from_zero and not number else tick_label(tick)
            yield element("path", class_="axis", d=f"M{x} {self.up(0)}v5")
            yield element("text", text, class_="tick middle", x=x, y=_HEIGHT - _BOTTOM + 19)
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        yield element("text", "tokens per question (log scale)", class_="middle", x=middle, y=_HEIGHT - 6)


@dataclass(frozen=True, slots=True)
class _Point:
    """A run in the picture; ``run``: its number in the table."""

    run: int
    name: str
    method: str
    tokens: float
    score: Interval
    x: float
    y: float


def marker(run: int) -> Markup:
    """Return a run's mark, as :func:`symbols` defines it."""
    return element("svg", element("use", href=f"#marker-{run}"), class_="marker", aria_hidden="true")


def symbols(runs: int) -> Markup:
    """Return the marks of all runs, to be used by their numbers."""
    marks = []
    for run in range(runs):
        shape = element("path", d=_SHAPES[run % len(_SHAPES)], class_=f"mark run-colour-{run % COLOURS}")
        marks.append(element("symbol", shape, id=f"marker-{run}", viewBox="-8 -8 16 16"))
    return element("svg", *marks, class_="unseen", aria_hidden="true")


def draw_chart(table: ResultsTable, measure: str, methods: Sequence[str]) -> Markup | None:
    """Return the picture of a measure; None if no run has it. ``methods``: each run's."""
    means = [each.measures.get(measure) for each in table.summaries]
    if not any(means):
        return None
    tokens = [each.tokens for each, mean in zip(table.summaries, means, strict=True) if mean]
    most = max(mean.high or mean.mean for mean in means if mean)
    axes = _Axes(tick_places(tokens), next((top for top in _TOPS if most <= top), 1.0), not all(tokens))
    points = [
        _Point(
            run, each.method, methods[run], each.tokens, mean, axes.across(each.tokens), axes.up(mean.mean)
        )
        for run, (each, mean) in enumerate(zip(table.summaries, means, strict=True))
        if mean
    ]
    title = f"{measure_title(measure, table.recall_at)} in percent"
    marks = [_point(point, axes) for point in points]
    parts = [*axes.draw(), *_curves(points), *marks, element("text", title, x=0, y=12)]
    label = f"{title} against tokens per question; the table above has the figures"
    return element("svg", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)


def _curves(points: Sequence[_Point]) -> Iterator[Markup]:
    """Yield a line through the runs of each method that has several, from the cheapest to the dearest."""
    groups: dict[str, list[_Point]] = {}
    for point in sorted(points, key=lambda each: each.tokens):
        groups.setdefault(point.method, []).append(point)
    for group in groups.values():
        path = "L".join(f"{each.x} {each.y}" for each in group)
        yield element("path", class_=f"curve run-colour-{group[0].run % COLOURS}", d=f"M{path}")


def _point(point: _Point, axes: _Axes) -> Markup:
    bar, score = None, point.score
    if score.low is not None and score.high is not None:
        low, high = axes.up(score.low), axes.up(score.high)
        bar = element("path", class_="error", d=f"M{point.x} {low}V{high}m-4 0h8M{point.x - 4} {low}h8")
    mark = element("use", href=f"#marker-{point.run}", x=point.x - 8, y=point.y - 8, width=16, height=16)
    told = element("title", f"{point.name}: {percent(score)}, {point.tokens:,.0f} tokens")
    return element("g", told, bar, mark, class_=f"run-colour-{point.run % COLOURS}")
