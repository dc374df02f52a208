"""The picture of a sweep: scores against tokens per question, with error bars, frontier and fitted curves."""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.statistics.scaling import Curve, Fit, pareto_set
from eval.sweeps.cells import OPENED_SECTIONS, Cell, short_value
from eval.sweeps.findings import METRICS, Findings, FinishedCell, curve_name, frontier, mean_scores
from eval.tables.ticks import tick_label, tick_places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart with any colour vision (Okabe and Ito 2008), without their yellow, which is too light on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# More of them than colours and without a common divisor, so that 63 groups differ in one or the other.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
FORMATS = (".png", ".svg", ".pdf")
# An SVG or PDF would note the time, which no two drawings share.
_WITHOUT_DATE: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
_INK = "#333333"
_INDEX = "retriever.index"
_MOST_GROUPS = 24  # a longer legend leaves no room for the picture
# Where a point's name may stand, in points of 1/72 inch from it, the best place first.
_HEIGHTS = (8, -8, 18, -18, 28, -28)
_NEIGHBOUR_INCHES = 0.4  # inches


@dataclass(frozen=True, slots=True)
class Point:
    """A cell as it is drawn.

    Labels come from ``cell_names`` in ``cells.py``, groups from ``grouped_by`` of the method.

    Attributes:
        label: written beside it where there is room, those of the frontier first.
        group: decides on colour and marker.
        tokens: per question.
        score: in percent; ``low`` and ``high`` are its interval, None for a single question.
        on_frontier: whether it is in the Pareto set.
        oracle: what the best of its candidates would score, in percent; None without candidates.
    """

    label: str
    group: str
    tokens: float
    score: float
    low: float | None
    high: float | None
    on_frontier: bool
    oracle: float | None = None


@dataclass(frozen=True, slots=True)
class DrawnCurve:
    """A method's fitted curve from ``start`` to ``end`` tokens, and what stands under the title of it."""

    name: str
    curve: Curve
    start: float
    end: float
    label: str


def plot(
    files: Sequence[Path], test_cells: Sequence[FinishedCell], findings: Findings, metric: str, title: str
) -> bool:
    """Draw the cells of a sweep to files, whose endings choose the format (.png, .svg).

    Return whether that was done: it is not without matplotlib, or if every cell failed.
    """
    cells = [each for each in test_cells if each.name not in findings.failed_cells]
    if not cells or importlib.util.find_spec("matplotlib") is None:
        return False
    groups = name_groups([each.cell for each in cells], [each.options for each in cells])
    points = [_point(each, group, findings, metric) for each, group in zip(cells, groups, strict=True)]
    measure = METRICS[metric]
    draw_scaling(points, files, measure=measure, title=title, lines=find_curves(cells, findings, measure))
    return True


def _point(each: FinishedCell, group: str, findings: Findings, metric: str) -> Point:
    """Return a cell as it is drawn."""
    interval = each.summary.measures[metric]
    low, high = (interval.low, interval.high) if interval else (None, None)
    # A cell of a grid whose name is all in its group is called as the legend calls it.
    label = group if each.cell.is_combined and each.cell.label == each.name else each.cell.label
    return Point(
        label,
        group,
        each.scores.mean_tokens,
        100 * each.scores.mean_score,
        None if low is None else 100 * low,
        None if high is None else 100 * high,
        each.name in findings.pareto,
        100 * each.oracle[max(each.oracle)].mean if each.oracle else None,
    )


def find_curves(cells: Sequence[FinishedCell], findings: Findings, measure: str) -> list[DrawnCurve]:
    """Return each method's curve through its Pareto set, or else all its cells, where these tell one."""
    curves = []
    for name, fits in findings.fits.items():
        scores = mean_scores([each for each in cells if curve_name(each) == name])
        for through, points in (("pareto", frontier(scores)), ("all", scores)):
            fit = fits[through]
            if isinstance(fit, Fit) and not fit.at_limit:
                costs = [each.mean_tokens for each in points]
                remarks = [through.replace("pareto", "frontier"), f"{fit.points} points"]
                remarks += [] if fit.r_squared is None else [f"R² {fit.r_squared:.2f}"]
                label = f"{name}: {fit.curve.formula(measure)}  ({', '.join(remarks)})"
                curves.append(DrawnCurve(name, fit.curve, min(costs), max(costs), label))
                break
    return curves


def name_groups(cells: Sequence[Cell], differing: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a plot draws alike, cell by cell: the method, with the options that it is grouped by.

    A cell that somebody named, and that no other looks like, goes by that name, as its label does. If two of
    them would look alike, and there are few cells, all go by their own names.

    ``differing``: the options that tell each cell from the others; of these, those of model and index are
    named too. Indexes are called by what tells them apart, such as bm25 and dense of 'indexes/wiki-bm25' and
    'indexes/wiki-dense', and left out where a legend would be too long.
    """
    indexes = {Path(path).name for each in differing for path in each.get(_INDEX, ())}
    beginning = os.path.commonprefix(list(indexes))  # noqa: RUF071 - of their characters, as wanted
    prefix = re.sub("[^-_]*$", "", beginning)  # whole words

    def name(cell: Cell, each: Mapping[str, Any], *, index: bool) -> str:
        grouped_by = cell.config.find_method(cell.method).grouped_by
        parts = [cell.method, *(str(getattr(cell.options, option)) for option in grouped_by)]
        if index:
            parts += ["+".join(Path(path).name.removeprefix(prefix) for path in each.get(_INDEX, ()))]
        parts += [
            f"{option}={short_value(value)}"
            for option, value in each.items()
            if value and option.split(".")[0] in OPENED_SECTIONS and option != _INDEX
        ]
        return " ".join(filter(None, parts))

    groups = [name(cell, each, index=True) for cell, each in zip(cells, differing, strict=True)]
    # The label of a cell of a grid is what tells it from its group, any other label is the whole name.
    unlabelled_counts = Counter(
        group for group, cell in zip(groups, cells, strict=True) if cell.label == cell.name
    )
    if max(unlabelled_counts.values(), default=0) > 1 and len(cells) <= len(COLOURS):
        return [cell.name for cell in cells]
    if len(set(groups)) > _MOST_GROUPS:
        groups = [name(cell, each, index=False) for cell, each in zip(cells, differing, strict=True)]
    sizes = Counter(groups)
    return [
        cell.name if cell.label == cell.name and sizes[group] == 1 and not cell.is_combined else group
        for group, cell in zip(groups, cells, strict=True)
    ]


def draw_scaling(
    points: Sequence[Point],
    files: Sequence[Path],
    *,
    measure: str,
    title: str,
    lines: Sequence[DrawnCurve] = (),
    form: str = "",
) -> None:
    """Draw the points to files in the format ``form``, by default that of their endings. Needs matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure

    # A Figure by itself needs no display: it is drawn by Agg, and by matplotlib's own writer for SVG.
    # Without the salt the ids in an SVG are drawn at random, and the same sweep would give another file.
    with matplotlib.rc_context({"svg.hashsalt": "corag", "font.size": 10}):
        groups = len({point.group for point in points})
        columns = 2 if groups <= 10 else 3
        oracle = any(point.oracle is not None for point in points)
        legend_rows = math.ceil((groups + 1 + len(lines) + oracle) / columns)
        figure = Figure(figsize=(8.4, 4.7 + 0.2 * (legend_rows + len(lines))), dpi=160, layout="constrained")
        axes = figure.add_subplot()
        spends_nothing = any(not point.tokens for point in points)
        ticks = tick_places([point.tokens for point in points])
        # On a log scale what spends nothing has no place: it is drawn on the left edge, whose tick says 0.
        points = [replace(point, tokens=point.tokens or ticks[0]) for point in points]
        best = sorted((point for point in points if point.on_frontier), key=lambda point: point.tokens)
        _draw_lines(axes, best, ticks[-1], lines)
        _draw_oracle(axes, points)
        _draw_groups(axes, points)
        _draw_axes(axes, ticks, f"{measure} (%)", from_zero=spends_nothing)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=_INK)
        if lines:
            labels = "\n".join(each.label for each in lines)
            axes.set_title(labels, loc="left", fontsize=8.5, color=_INK)
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        rest = [point for point in points if not point.on_frontier]
        _draw_labels(figure, axes, [*best, *rest], points)
        for file in files:
            file_format = form or file.suffix[1:]
            figure.savefig(file, format=file_format, metadata=_WITHOUT_DATE.get(file_format))


def _draw_lines(axes: Axes, best: Sequence[Point], most: float, lines: Sequence[DrawnCurve]) -> None:
    """Draw the Pareto frontier up to ``most`` tokens, and the fitted curves."""
    # What is the best under each budget; the last point is for all larger ones.
    steps = [(point.tokens, point.score) for point in best] + [(most, best[-1].score)]
    tokens, scores = zip(*steps, strict=True)
    axes.step(tokens, scores, where="post", color="#999999", linewidth=1.4, zorder=1, label="Pareto frontier")
    for number, line in enumerate(lines):
        x_values = np.geomspace(line.start, line.end, 300)
        dashes = (0, (5, 2) + (1, 2) * number)
        along = line.curve.at(x_values)
        axes.plot(x_values, along, color=_INK, linewidth=1.6, linestyle=dashes, label=f"curve: {line.name}")


def _draw_oracle(axes: Axes, points: Sequence[Point]) -> None:
    """Draw what choosing could win: a dotted line through the best choices for so many tokens or fewer."""
    oracles = [(point.tokens, point.oracle) for point in points if point.oracle is not None]
    best = [oracles[index] for index in pareto_set(*zip(*oracles, strict=True))] if oracles else []
    if best:
        tokens, scores = zip(*sorted(best), strict=True)
        axes.plot(
            tokens, scores, color=_INK, linewidth=1.4, linestyle=":", marker=".", markersize=5, zorder=1,
            label="oracle: the best candidate",
        )  # fmt: skip


def _draw_labels(
    figure: Figure, axes: Axes, labelled_points: Sequence[Point], points: Sequence[Point]
) -> None:
    """Name points, each at the first place beside it that is free."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    # Only then it is known what lies where.
    figure.draw_without_rendering()
    marker = 0.05 * figure.dpi
    positions = axes.transData.transform([(point.tokens, point.score) for point in points])
    boxes = [Bbox.from_bounds(x - marker, y - marker, 2 * marker, 2 * marker) for x, y in positions]
    edge = axes.get_window_extent()
    for point in labelled_points:
        x, y = axes.transData.transform((point.tokens, point.score))
        near = [
            other - x
            for other, height in positions
            if other != x and abs(other - x) < _NEIGHBOUR_INCHES * figure.dpi > abs(height - y)
        ]
        # A name on its neighbour's side would be read as the neighbour's.
        sides = ("right", "left") if near and min(near, key=abs) > 0 else ("left", "right")
        for dy, side in itertools.product(_HEIGHTS, sides):
            text = axes.annotate(
                point.label, (point.tokens, point.score), xytext=(7 if side == "left" else -7, dy),
                textcoords="offset points", ha=side, va="center", fontsize=7.5, color=_INK, zorder=6,
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )  # fmt: skip
            box = text.get_window_extent()
            inside = edge.x0 < box.x0 and box.x1 < edge.x1 and box.y1 < edge.y1
            if inside and not any(map(box.overlaps, boxes)):
                boxes.append(box)
                break
            text.remove()


def _draw_groups(axes: Axes, points: Sequence[Point]) -> None:
    """Draw the points: filled on the frontier, hollow elsewhere."""
    for number, group in enumerate(dict.fromkeys(point.group for point in points)):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        members = [point for point in points if point.group == group]
        for point in members:
            if point.low is not None and point.high is not None:
                ends = [point.low, point.high]
                axes.plot([point.tokens] * 2, ends, color=colour, linewidth=1, alpha=0.45, zorder=2)
        # Only what there is: nothing to draw would upset the layout.
        for is_filled in {point.on_frontier: None for point in members}:
            part = [point for point in members if point.on_frontier == is_filled]
            axes.plot(
                [point.tokens for point in part],
                [point.score for point in part],
                linestyle="none", marker=marker, markersize=7, markeredgewidth=1.4, markeredgecolor=colour,
                markerfacecolor=colour if is_filled else "white", zorder=3 + is_filled, clip_on=False,
            )  # fmt: skip
        # One entry for the group, whichever of its points there are.
        axes.plot([], [], linestyle="none", marker=marker, markersize=7, color=colour, label=group)


def _draw_axes(axes: Axes, ticks: Sequence[float], score: str, *, from_zero: bool) -> None:
    axes.set_xscale("log")
    axes.set_xlim(ticks[0], ticks[-1])
    labels = [tick_label(tick) for tick in ticks]
    axes.set_xticks(ticks, ["0", *labels[1:]] if from_zero else labels)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)  # from elsewhere on, a small difference would look like a large one
    axes.set_xlabel("tokens per question (prompt and generated, log scale)")
    axes.set_ylabel(score)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
