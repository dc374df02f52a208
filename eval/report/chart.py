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
    points = [
        (run, each.tokens, score)
        for run, each in enumerate(table.summaries)
        if (score := each.measures.get(measure))
    ]
    if not points:
        return None
    most = max(score.high or score.mean for _, _, score in points)
    tokens = [each for _, each, _ in points]
    axes = _Axes(tick_places(tokens), next((top for top in _TOPS if most <= top), 1.0), not all(tokens))
    title = f"{measure_title(measure, table.recall_at)} in percent"
    curves: dict[str, list[tuple[int, float, Interval]]] = {}
    for point in sorted(points, key=lambda each: each[1]):
        curves.setdefault(methods[point[0]], []).append(point)
    parts = [
        *axes.draw(),
        *(_curve(each, axes) for each in curves.values()),
        *(_point(table.summaries[run].method, run, cost, score, axes) for run, cost, score in points),
        element("text", title, x=0, y=12),
    ]
    label = f"{title} against tokens per question; the table above has the figures"
    return element("svg", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)


def _curve(points: Sequence[tuple[int, float, Interval]], axes: _Axes) -> Markup:
    """Return a line through the runs of a method, from the cheapest to the dearest."""
    path = "L".join(f"{axes.across(tokens)} {axes.up(score.mean)}" for _, tokens, score in points)
    return element("path", class_=f"curve run-colour-{points[0][0] % COLOURS}", d=f"M{path}")


def _point(name: str, run: int, tokens: float, score: Interval, axes: _Axes) -> Markup:
    bar, x, y = None, axes.across(tokens), axes.up(score.mean)
    if score.low is not None and score.high is not None:
        low, high = axes.up(score.low), axes.up(score.high)
        bar = element("path", class_="error", d=f"M{x} {low}V{high}m-4 0h8M{x - 4} {low}h8")
    mark = element("use", href=f"#marker-{run}", x=x - 8, y=y - 8, width=16, height=16)
    title = element("title", f"{name}: {percent(score)}, {tokens:,.0f} tokens")
    return element("g", title, bar, mark, class_=f"run-colour-{run % COLOURS}")
