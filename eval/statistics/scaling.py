"""Accuracy against tokens over a sweep's cells: Pareto set, the paper's curve, the best cell under a budget.

CoRAG (Wang et al. 2025), section 5.1 and figure 3: scores against tokens per question, and
y = a * log(x + b) + c fitted to the points that are Pareto optimal. Here x is in tokens, log is the natural
logarithm and y is in percent, as in the figure. The paper prints neither coefficients nor intervals; ours
resample questions, the same ones for all cells, since all answer the same ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import DataError
from corag.core.seeds import derive_seed
from eval.statistics.intervals import DIGITS

Floats = NDArray[np.float64]

FEWEST_POINTS = 4  # three coefficients go through any three points

# How small and how large x + b may be at the first point: in units of its x, and of the last point's x. Below
# the first the curve drops off right before its first point; above the second it can hardly be told from a
# straight line.
_SHIFTS = (0.01, 10.0)
_STARTS = 61  # values of b that are tried before the search, at equal steps of its logarithm
_EQUAL_WITHIN = 1e-9  # points: less is a rounding error
_REWEIGHTINGS = 12  # rounds for each of them; the search makes up for what these leave


@dataclass(frozen=True, slots=True, eq=False)
class CellScores:
    """One cell by question: ``tokens``, and ``scores`` as fractions.

    Both are float64 [questions], in the same order for all cells.
    """

    name: str
    tokens: Floats
    scores: Floats

    @property
    def mean_tokens(self) -> float:
        """Tokens per question."""
        return float(self.tokens.mean())

    @property
    def mean_score(self) -> float:
        """The score as a fraction, without what the order of summation adds: equal cells are equal."""
        return round(float(self.scores.mean()), DIGITS)


@dataclass(frozen=True, slots=True)
class Curve:
    """y = a * log(x + b) + c: x in tokens per question, y in percent, natural logarithm."""

    a: float
    b: float
    c: float

    def at(self, tokens: Floats) -> Floats:
        """Return y for each x."""
        return self.a * np.log(tokens + self.b) + self.c

    def formula(self, measure: str = "y") -> str:
        """Write the curve.

        >>> Curve(3.5, -200.0, -12.25).formula("F1")
        'F1 = 3.50 log(x - 200) - 12.2'
        """
        b, c = (
            "+-"[value < 0] + f" {abs(value):{form}}" for value, form in ((self.b, ",.0f"), (self.c, ".1f"))
        )
        return f"{measure} = {self.a:.2f} log(x {b}) {c}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A coefficient and its bootstrap interval; no bounds for a single question, which has no spread."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """The curve through some points.

    Attributes:
        a, b, c: the coefficients.
        r_squared: of the points' variance, the share that the curve explains; below 0 if a level line lies
            nearer, as it may since the fit is robust; None if the points are level.
        points: how many cells it goes through.
        questions: how many each of them answered.
        at_limit: b is about as far down ("lower") or up ("upper") as it may go, so that the points do not
            tell it; else "".
    """

    a: Estimate
    b: Estimate
    c: Estimate
    r_squared: float | None
    points: int
    questions: int
    at_limit: str = ""

    @property
    def curve(self) -> Curve:
        """The curve itself."""
        return Curve(self.a.value, self.b.value, self.c.value)


def pareto_set(tokens: Sequence[float], scores: Sequence[float]) -> list[int]:
    """Return the points that no other beats, by rising tokens.

    A point beats another if it is at least as good for at most as many tokens, and better in one of the two.
    Equal points are both kept. One whose score is not a number is not.

    >>> pareto_set([900, 1500, 2500, 2500], [0.2, 0.1, 0.3, 0.25])
    [0, 2]
    """
    frontier: list[int] = []
    points = [point for point in range(len(tokens)) if not math.isnan(scores[point])]
    # By rising tokens, of equal tokens the best first: then a point is beaten if the last one that was not is
    # as good.
    for point in sorted(points, key=lambda point: (tokens[point], -scores[point])):
        best = frontier[-1] if frontier else None
        same = best is not None and (tokens[point], scores[point]) == (tokens[best], scores[best])
        if best is None or same or scores[point] > scores[best]:
            frontier.append(point)
    return frontier


def best_under(budget: float, cells: Sequence[CellScores]) -> CellScores | None:
    """Return the best cell of those that spend at most ``budget`` tokens per question on average.

    The cheapest of equally good ones, then the first; None if all spend more. One whose score is not a number
    is not chosen.
    """
    affordable = [cell for cell in cells if cell.mean_tokens <= budget and not math.isnan(cell.mean_score)]
    return max(affordable, key=lambda cell: (cell.mean_score, -cell.mean_tokens), default=None)


def fit_curve(
    cells: Sequence[CellScores], *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Fit:
    """Fit the paper's curve to the cells' means, robustly, with intervals by resampling questions.

    Args:
        cells: the points, on the same questions. One whose score or cost is not a number is left out.
        level: of the intervals, which are percentiles over fits to resamples. A resample takes the same
            questions from all cells; the cells stay those that were given, also if they were chosen as Pareto
            optimal, so the choice adds nothing to the intervals.
        resamples: how many.
        seed: what the resamples' seed is derived from.

    Raises:
        DataError: if the cells have fewer than four different x, or different numbers of questions.
    """
    cells = [cell for cell in cells if math.isfinite(cell.mean_score) and math.isfinite(cell.mean_tokens)]
    if len({cell.scores.size for cell in cells} | {cell.tokens.size for cell in cells}) > 1:
        raise DataError(
            "the cells have different numbers of questions: a curve needs the same questions in all of them."
        )
    distinct = len({cell.mean_tokens for cell in cells})
    if distinct < FEWEST_POINTS:
        raise DataError(
            f"a curve of three coefficients needs at least {FEWEST_POINTS} points of different cost, but "
            f"there are {distinct}: add cells between the cheapest and the dearest."
        )
    tokens = np.stack([cell.tokens for cell in cells])  # [cells, questions]
    scores = 100 * np.stack([cell.scores for cell in cells])
    questions = scores.shape[1]
    errors = scores.std(axis=1, ddof=1) / math.sqrt(questions) if questions > 1 else np.zeros(len(cells))
    # A cell may lie so far off by chance, and no farther. One whose questions all score alike does not tell
    # how far, though rounding leaves it a spread that is not quite 0.
    informative = errors[errors > _EQUAL_WITHIN]
    tolerance = float(np.median(informative)) if informative.size else 1.0
    x, y = tokens.mean(axis=1), scores.mean(axis=1)
    curve, at_limit = _fit(x, y, tolerance)
    spread = float(((y - y.mean()) ** 2).sum())
    residual = float(((y - curve.at(x)) ** 2).sum())
    ends: Sequence[tuple[float | None, float | None]] = [(None, None)] * 3
    if questions > 1:
        # How often each question is drawn stands for a resample: the cells' means are then a matrix product.
        draw = np.random.default_rng(derive_seed("scaling", seed))
        weights = draw.multinomial(questions, [1 / questions] * questions, size=resamples).T / questions
        means = zip((tokens @ weights).T, (scores @ weights).T, strict=True)
        again = [_fit(mean_x, mean_y, tolerance)[0] for mean_x, mean_y in means]
        ends = _percentiles([(each.a, each.b, each.c) for each in again], level)
    a, b, c = (Estimate(value, *end) for value, end in zip((curve.a, curve.b, curve.c), ends, strict=True))
    return Fit(a, b, c, 1 - residual / spread if spread > 1e-9 else None, len(cells), questions, at_limit)


def _percentiles(values: Sequence[tuple[float, ...]], level: float) -> list[tuple[float, float]]:
    """Return for each column the two ends between which this share of the values lies."""
    ends = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return [(float(low), float(high)) for low, high in ends.T]


def _fit(x: Floats, y: Floats, tolerance: float) -> tuple[Curve, str]:
    """Fit one curve; say whether b ended at a limit.

    Residuals beyond ``tolerance`` points count linearly, not squared (soft L1): one cell that fails, such as
    chains that run into their limit, should not bend the curve.
    """
    from scipy.optimize import least_squares  # slow to import

    # What is searched is not b but log d, with d = (x + b) / max x at the first point: x + b stays above 0.
    first, last = float(x.min()), max(float(x.max()), 1.0)
    z = (x - first) / last
    lower, upper = math.log(max(_SHIFTS[0] * first / last, 1e-6)), math.log(_SHIFTS[1])
    start = _best_start(z, y, np.linspace(lower, upper, _STARTS), tolerance)
    solution = least_squares(
        functools.partial(_residuals, z, y),
        start,
        functools.partial(_slopes, z),
        bounds=([-np.inf, lower, -np.inf], [np.inf, upper, np.inf]),
        x_scale="jac",
        loss="soft_l1",
        f_scale=tolerance,
        ftol=1e-7,
        xtol=1e-7,
        max_nfev=50,  # the start is near; a curve that hardly bends would creep along its limit for ever
    )
    a, log_d, c = map(float, solution.x)
    near = 0.05 * (upper - lower)
    at_limit = "lower" if log_d < lower + near else "upper" if log_d > upper - near else ""
    return Curve(a, math.exp(log_d) * last - first, c - a * math.log(last)), at_limit


def _residuals(z: Floats, y: Floats, coefficients: Floats) -> Floats:
    a, log_d, c = coefficients
    return np.asarray(a * np.log(z + math.exp(log_d)) + c - y)


def _slopes(z: Floats, coefficients: Floats) -> Floats:
    """Return d residual / d (a, log d, c): [points, 3]."""
    a, log_d, _ = coefficients
    d = math.exp(log_d)
    return np.stack([np.log(z + d), a * d / (z + d), np.ones_like(z)], axis=1)


def _best_start(z: Floats, y: Floats, logs: Floats, tolerance: float) -> Floats:
    """Return (a, log d, c) of the best robust fit over a grid of log d.

    For a given d the curve is linear in a and c, which follow by reweighted least squares. So all starts are
    solved at once, and the search from the best one does not end in a local minimum.
    """
    curves = np.log(z + np.exp(logs)[:, None])  # [starts, points]
    weights = np.ones_like(curves)
    for _ in range(_REWEIGHTINGS):
        weights /= weights.sum(axis=1, keepdims=True)
        mean_x, mean_y = (weights * curves).sum(axis=1), weights @ y
        deviations = curves - mean_x[:, None]
        spread = np.maximum((weights * deviations**2).sum(axis=1), 1e-300)  # 0 if a resample has all at one x
        a = (weights * deviations) @ y / spread
        c = mean_y - a * mean_x
        far = ((a[:, None] * curves + c[:, None] - y) / tolerance) ** 2
        weights = 1 / np.sqrt(1 + far)  # those of soft_l1
    best = int((np.sqrt(1 + far) - 1).sum(axis=1).argmin())
    inside = min(max(best, 1), len(logs) - 2)  # the search must begin within its bounds
    return np.array([a[inside], logs[inside], c[inside]])
