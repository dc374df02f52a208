"""Scores against tokens per question as a picture, of a sweep or a table: intervals, frontier, curves."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corag.core.errors import ConfigError
from corag.core.system.files import atomic_replace
from corag.core.system.installation import require
from eval.scoring.rows import measure_title
from eval.statistics.intervals import Interval, Spread
from eval.statistics.scaling import pareto_set
from eval.sweeps.cells import OPENED_SECTIONS, Cell, short_value
from eval.sweeps.findings import Findings, FinishedCell, MethodCurve, mean_scores
from eval.tables.results import ResultsTable
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
# Where a point's name may stand, in points of 1/72 inch from it, the best place first.
_HEIGHTS = (8, -8, 18, -18)


@dataclass(frozen=True, slots=True)
class Point:
    """A cell or run as it is drawn.

    Attributes:
        label: written beside it where there is room, those of the frontier first.
        group: decides on colour and marker.
        tokens: per question.
        score: a fraction with its interval; of a mean over runs, for other runs too.
        on_frontier: whether it is in the Pareto set.
    """

    label: str
    group: str
    tokens: float
    score: Interval | Spread
    on_frontier: bool


def plot(
    files: Sequence[Path], cells: Sequence[FinishedCell], findings: Findings, measure: str, title: str
) -> bool:
    """Draw the points of a sweep to files, whose endings choose the format (.png, .svg).

    Return whether that was done: it is not without matplotlib, or if every cell failed.
    """
    cells = [each for each in cells if each.name not in findings.failed_cells]
    if not cells or importlib.util.find_spec("matplotlib") is None:
        return False
    groups = name_groups([each.cell for each in cells], [each.options for each in cells])
    named = {each.name: (each, group) for each, group in zip(cells, groups, strict=True)}
    points = []
    for scores in mean_scores(cells):
        each, group = named[scores.name]
        label = name_point(each.cell, each.options) or group
        is_best = scores.name in findings.pareto
        points.append(Point(label, group, scores.mean_tokens, scores.interval, is_best))
    draw_scaling(points, files, measure=measure, title=title, curves=findings.curves)
    return True


def name_groups(cells: Sequence[Cell], differing: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a plot draws alike, cell by cell: the method, with the options that it is grouped by.

    A cell that somebody named goes by that name if no other looks like it. ``differing``: the options that
    tell each cell from the others; of these, those of model and index are named too.
    """

    def name(cell: Cell, options: Mapping[str, Any]) -> str:
        grouped_by = cell.config.find_method(cell.method).grouped_by
        parts = [str(getattr(cell.options, option)) for option in grouped_by]
        parts += ["+".join(Path(path).name for path in options.get(_INDEX, ()))]
        parts += [
            f"{option}={short_value(value)}"
            for option, value in options.items()
            if value and option.split(".")[0] in OPENED_SECTIONS and option != _INDEX
        ]
        return " ".join(filter(None, [cell.method, *parts]))

    groups = list(map(name, cells, differing))
    sizes = Counter(groups)
    return [
        cell.name if sizes[group] == 1 and not cell.is_combined else group
        for cell, group in zip(cells, groups, strict=True)
    ]


def name_point(cell: Cell, options: Mapping[str, Any]) -> str:
    """Return what tells a cell of a grid from others of its group, "" for nothing; any other cell's name."""
    if not cell.is_combined:
        return cell.name
    grouped_by = {f"{cell.method}.{each}" for each in cell.config.find_method(cell.method).grouped_by}
    return " ".join(
        f"{option.rpartition('.')[2]}={short_value(value)}"
        for option, value in options.items()
        if option not in grouped_by | {"method"} and option.split(".")[0] not in OPENED_SECTIONS
    )


def check_figure(file: str | Path) -> None:
    """Raise :class:`ConfigError` for a file that is no picture's, or without matplotlib."""
    if Path(file).suffix.lower() not in FORMATS:
        raise ConfigError(
            f"'{file}' is no name of a figure: it must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, "
            "such as score.pdf."
        )
    require("a figure", "matplotlib")


def draw_figure(table: ResultsTable, file: str | Path) -> str:
    """Draw the runs of a table to a file, whose ending is the format; return the heading of what is drawn.

    That is F1, or else the first measure that the table shows. Raises :class:`ConfigError` as
    :func:`check_figure`, and if no run has a score.
    """
    check_figure(file)
    names = table.measures or [*dict.fromkeys(name for each in table.summaries for name in each.measures)]
    known = [name for name in names if any(each.measures.get(name) is not None for each in table.summaries)]
    measure = "f1" if "f1" in known and not table.measures else next(iter(known), "")
    others = {name for members in table.groups.values() for name in members[1:]}  # drawn as the first's mean
    scored: list[tuple[str, float, Interval | Spread]] = []
    for each in table.summaries:
        score, means = each.measures.get(measure), table.means.get(each.method, {})
        if score is not None and each.failure_count < each.n and each.method not in others:
            mean = means.get(measure)
            is_mean = mean is not None and mean.n > 1
            tokens = means["tokens"].mean if is_mean else each.tokens
            scored.append((each.method, tokens, mean if mean is not None and is_mean else score))
    if not scored:
        raise ConfigError(
            "no run has a score to draw: it needs gold answers, or gold passages that it found."
        )
    best = set(pareto_set([tokens for _, tokens, _ in scored], [score.mean for *_, score in scored]))
    points = [
        Point(name, name, tokens, score, number in best)
        for number, (name, tokens, score) in enumerate(scored)
    ]
    title, most = measure_title(measure, table.recall_at), max(each.n for each in table.summaries)
    heading = f"{title} over tokens per question, n = {most:,}, 95% intervals"
    with atomic_replace(file) as temporary:
        draw_scaling(points, [temporary], measure=title, title=heading, form=Path(file).suffix[1:].lower())
    return title


def draw_scaling(
    points: Sequence[Point],
    files: Sequence[Path],
    *,
    measure: str,
    title: str,
    curves: Mapping[str, MethodCurve] = {},
    form: str = "",
) -> None:
    """Draw points with their frontier, and the curves that points tell, to files.

    ``form``: the format of all, instead of their endings. Needs matplotlib.
    """
    import matplotlib
    from matplotlib.figure import Figure

    fitted = {name: each for name, each in curves.items() if each.fit}
    # A Figure by itself needs no display: it is drawn by Agg, and by matplotlib's own writer for SVG.
    # Without the salt the ids in an SVG are drawn at random, and the same sweep would give another file.
    with matplotlib.rc_context({"svg.hashsalt": "corag", "font.size": 10}):
        groups = len({point.group for point in points})
        columns = 2 if groups <= 10 else 3
        legend_rows = math.ceil((groups + 1 + len(fitted)) / columns)
        figure = Figure(figsize=(8.4, 4.7 + 0.2 * (legend_rows + len(fitted))), dpi=160, layout="constrained")
        axes = figure.add_subplot()
        spends_nothing = any(not point.tokens for point in points)
        ticks = tick_places([point.tokens for point in points])
        # On a log scale what spends nothing has no place: it is drawn on the left edge, whose tick says 0.
        points = [replace(point, tokens=point.tokens or ticks[0]) for point in points]
        best = sorted((point for point in points if point.on_frontier), key=lambda point: point.tokens)
        _draw_frontier(axes, best, ticks[-1])
        _draw_curves(axes, fitted, measure)
        _draw_groups(axes, points)
        _draw_axes(axes, ticks, f"{measure} (%)", from_zero=spends_nothing)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=_INK)
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        rest = [point for point in points if not point.on_frontier]
        _draw_labels(figure, axes, [*best, *rest])
        for file in files:
            file_format = form or file.suffix[1:]
            figure.savefig(file, format=file_format, metadata=_WITHOUT_DATE.get(file_format))


def _draw_frontier(axes: Axes, best: Sequence[Point], most: float) -> None:
    """Draw what is the best under each budget; the last point is for all larger ones, to ``most`` tokens."""
    steps = [(point.tokens, 100 * point.score.mean) for point in best] + [(most, 100 * best[-1].score.mean)]
    tokens, scores = zip(*steps, strict=True)
    label = "Pareto frontier (filled points)"
    axes.step(tokens, scores, where="post", color="#999999", linewidth=1.4, zorder=1, label=label)


def _draw_curves(axes: Axes, curves: Mapping[str, MethodCurve], measure: str) -> None:
    labels = []
    for number, (name, each) in enumerate(curves.items()):
        assert each.fit is not None
        x_values, curve = np.geomspace(each.start, each.end, 300), each.fit.curve
        dashes = (0, (5, 2) + (1, 2) * number)
        y_values, label = curve.at(x_values), f"curve: {name}"
        axes.plot(x_values, y_values, color=_INK, linewidth=1.6, linestyle=dashes, label=label)
        r_squared = "" if each.fit.r_squared is None else f", R² {each.fit.r_squared:.2f}"
        remarks = f"{each.through}, {each.fit.points} points{r_squared}"
        labels.append(f"{name}: {curve.formula(measure)}  ({remarks})")
    if labels:
        axes.set_title("\n".join(labels), loc="left", fontsize=8.5, color=_INK)


def _draw_labels(figure: Figure, axes: Axes, points: Sequence[Point]) -> None:
    """Name points, each at the first place beside it that is free."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    # Only then it is known what lies where.
    figure.draw_without_rendering()
    marker = 0.05 * figure.dpi
    places = [(point.tokens, 100 * point.score.mean) for point in points]
    positions = axes.transData.transform(places)
    boxes = [Bbox.from_bounds(x - marker, y - marker, 2 * marker, 2 * marker) for x, y in positions]
    edge = axes.get_window_extent()
    for point, place in zip(points, places, strict=True):
        for dy, side in itertools.product(_HEIGHTS, ("left", "right")):
            text = axes.annotate(
                point.label, place, xytext=(7 if side == "left" else -7, dy),
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
        for point in (point for point in points if point.group == group):
            mean, low, high = point.score.mean, point.score.low, point.score.high
            if low is not None and high is not None:
                ends = [100 * low, 100 * high]
                axes.plot([point.tokens] * 2, ends, color=colour, linewidth=1, alpha=0.45, zorder=2)
            axes.plot(
                [point.tokens], [100 * mean],
                linestyle="none", marker=marker, markersize=7, markeredgewidth=1.4, markeredgecolor=colour,
                markerfacecolor=colour if point.on_frontier else "white", zorder=3 + point.on_frontier,
                clip_on=False,
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
