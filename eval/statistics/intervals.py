"""Error bars for means over questions, and paired tests between two runs on the same questions.

Everything here resamples questions, through scipy. Seeds are derived from ``seed``, and values are sorted
first, so the same scores give the same figures however the run was scheduled. With 10,000 resamples the ends
of a 95% interval are sure to about 1.5% of its width, and a p-value of 0.05 to 0.004.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import DataError
from corag.core.seeds import derive_seed

_CELLS = 1_000_000  # resampled values held at once: bounds memory at about 64 MB for any number of questions
_EQUAL_WITHIN = 1e-9  # closer values than this are equal: differences of fractions carry rounding errors
_LEAST_DIFFERENT = 6  # differences without which a sign-flip test can find nothing at the 5% level
DIGITS = 12  # of means, below which differences are rounding errors

INTERVALS = "Wilson's where each question scores 0 or 1, exact where all score alike, else bootstrap"
"""Which intervals of means :func:`bootstrap_mean` returns, for a reader of a table."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over n questions and its interval, as :func:`bootstrap_mean` says which.

    ``low`` and ``high`` are None when n is 1: one value has no spread.
    """

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Second run minus first, paired by question: the mean difference with its interval, a two-sided p-value.

    ``detectable``: the smallest true difference that so many questions are likely to show, see
    :func:`paired_power`.
    """

    difference: Interval
    p_value: float
    detectable: float | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over n runs and their standard deviation (n - 1 in the denominator); None when n is 1.

    ``low`` and ``high``: the interval of :func:`bootstrap_runs`, None where there is none.
    """

    mean: float
    deviation: float | None
    n: int
    low: float | None = None
    high: float | None = None


def interval_record(name: str, interval: Interval | None) -> dict[str, Any]:
    """Write a mean and its interval as two fields of a JSON object: fractions, the interval as [low, high].

    >>> interval_record("em", Interval(0.25, 0.2, 0.3, 100))
    {'em': 0.25, 'em_interval': [0.2, 0.3]}
    """
    if interval is None:
        return {name: None, f"{name}_interval": None}
    has_bounds = interval.low is not None and interval.high is not None
    bounds = [round(interval.low or 0.0, 4), round(interval.high or 0.0, 4)] if has_bounds else None
    return {name: round(interval.mean, 4), f"{name}_interval": bounds}


def bootstrap_mean(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval | None:
    """Return the mean of fractions in [0, 1] and its interval; None if there are no values.

    Of values that are all 0 or 1, as those of exact match, it is Wilson's (1927), which covers rare successes
    too. Of others it is the percentile bootstrap's (Efron 1979), which is too narrow where few values differ
    from the rest: for 60 questions, 6% of them right, it would hold the true mean in 87% of samples only.

    Where all are equal, resampling would give an interval without width, however few they are. Then it is the
    exact one of Clopper and Pearson (1934) for how many other values there may be, each of them as far away
    as a fraction can be.

    Raises :class:`DataError` for a value that is not a finite number, as :func:`compare_paired` does.

    >>> bootstrap_mean([0.0] * 100)
    Interval(mean=0.0, low=0.0, high=0.0362..., n=100)
    >>> bootstrap_mean([0.0] * 99 + [1.0])
    Interval(mean=0.01, low=0.0017..., high=0.0544..., n=100)
    """
    # Sorted: resampling draws places, so the order in which questions were answered would change the figures.
    data = np.sort(_finite(values))
    if not data.size:
        return None
    if 0 < (right := int((data == 1).sum())) < data.size == right + int((data == 0).sum()):
        return _wilson(right, data.size, level)
    return _bootstrap(data, (0.0, 1.0), level, resamples, seed)


def _finite(values: Sequence[float]) -> NDArray[np.float64]:
    data = np.asarray(values, dtype=np.float64)
    if (wrong := np.flatnonzero(~np.isfinite(data))).size:
        raise DataError(
            f"value {wrong[0] + 1} of {data.size} is {data[wrong[0]]}: a mean needs finite numbers. Leave it "
            "out, or mend what scored it."
        )
    return data


def _wilson(right: int, n: int, level: float) -> Interval:
    from scipy.stats import binomtest  # slow to import

    bounds = binomtest(right, n).proportion_ci(level, method="wilson")
    return Interval(right / n, float(bounds.low), float(bounds.high), n)


def _bootstrap(
    data: NDArray[np.float64], bounds: tuple[float, float], level: float, resamples: int, seed: int
) -> Interval:
    from scipy.stats import binomtest, bootstrap  # slow to import

    mean = float(data.mean())
    if data.size < 2:
        return Interval(mean, None, None, 1)
    if np.ptp(data) < _EQUAL_WITHIN:
        # As if 0 of n questions had been otherwise: the interval goes as far as the share that might be.
        others = float(binomtest(0, data.size).proportion_ci(level, method="exact").high)
        return Interval(
            mean, mean - others * (mean - bounds[0]), mean + others * (bounds[1] - mean), data.size
        )
    interval = bootstrap(
        (data,),
        np.mean,
        n_resamples=resamples,
        batch=_batch(data),
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(derive_seed("bootstrap", seed)),
    ).confidence_interval
    return Interval(mean, float(interval.low), float(interval.high), data.size)


def compare_paired(
    first: Mapping[str, float],
    second: Mapping[str, float],
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    interval: bool = True,
) -> Comparison:
    """Compare two runs' scores by question id: paired bootstrap interval and sign-flip permutation test.

    ``interval``: whether the interval is wanted, which takes as long as the test.

    Raises :class:`DataError` unless both runs scored exactly the same questions, at least one.
    """
    _require_same_questions(first, second)
    # Sorted, so that neither the order of the questions nor that of their answers matters to the resamples.
    differences = np.sort([second[question] - first[question] for question in first])
    # Where all differ alike, others may differ by as much the other way round, as the test has it: an
    # interval that reached further would hold 0 beside a difference that is significant.
    common_difference = float(differences[0]) if np.ptp(differences) < _EQUAL_WITHIN else 0.0
    bounds = (
        -common_difference if common_difference > 0 else -1.0,
        -common_difference if common_difference < 0 else 1.0,
    )
    return Comparison(
        _bootstrap(differences, bounds, level, resamples, seed)
        if interval
        else Interval(float(differences.mean()), None, None, differences.size),
        _sign_flip_test(differences, resamples, seed),
        paired_power(differences),
    )


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation of one measure over runs that differ only in, say, their seed.

    Raises :class:`DataError` if there are no values, or one is not a finite number.

    >>> spread([0.25, 0.5, 0.75])
    Spread(mean=0.5, deviation=0.25, n=3, low=None, high=None)
    """
    if not len(values):
        raise DataError("there is no run to take a mean over.")
    data = _finite(values)
    return Spread(float(data.mean()), float(data.std(ddof=1)) if data.size > 1 else None, data.size)


def bootstrap_runs(
    runs: Sequence[Mapping[str, float]], *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval | None:
    """Return the mean over runs and questions, and an interval for other runs of other questions.

    Questions and runs are crossed: every run answered every question. So both are drawn anew, each by itself,
    and the mean is that of the drawn questions in the drawn runs: the pigeonhole bootstrap (Owen 2007, The
    Annals of Applied Statistics 1, 386-411), whose variance is on the large side, never on the small one, for
    many runs; of two runs that scatter it sees half. Of one run, and where all scores are equal, it is that
    of :func:`bootstrap_mean`. None if no question is scored in all runs.

    >>> bootstrap_runs([{"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 1.0}])
    Interval(mean=0.75, low=0.0, high=1.0, n=2)
    """
    shared = set.intersection(*({*run} for run in runs))
    # Sorted by their scores, as in bootstrap_mean: the order of the questions must not matter.
    scores = np.array(sorted(_finite([run[question] for run in runs]).tolist() for question in shared))
    if not scores.size:
        return None
    n, count = scores.shape
    if count < 2 or np.ptp(scores) < _EQUAL_WITHIN or n < 2:
        return bootstrap_mean(scores.mean(axis=1).tolist(), level=level, resamples=resamples, seed=seed)
    rng = np.random.default_rng(derive_seed("bootstrap", seed))
    by_run = np.concatenate(
        [
            scores[rng.integers(n, size=(len(part), n))].mean(axis=1)
            for part in np.array_split(np.empty(resamples), math.ceil(resamples / _batch(scores)))
        ]
    )
    means = np.take_along_axis(by_run, rng.integers(count, size=by_run.shape), axis=1).mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(scores.mean()), float(low), float(high), n)


def paired_power(
    differences: Sequence[float] | NDArray[np.float64], *, power: float = 0.8, level: float = 0.05
) -> float | None:
    """Return the smallest true mean difference that a two-sided paired test is likely to find.

    (t(1 - level/2) + t(power)) * s / sqrt(n), with s the spread of the n observed differences by question and
    t the quantiles for n - 1 degrees of freedom: the usual approximation of the noncentral t. None if all are
    equal, or fewer than six differ from 0: so few tell nothing of the spread, and no sign-flip test of them
    has a p below 0.05 (2 / 2^5 is 0.06).
    """
    data = np.asarray(differences, dtype=np.float64)
    if np.count_nonzero(np.abs(data) > _EQUAL_WITHIN) < _LEAST_DIFFERENT or np.ptp(data) < _EQUAL_WITHIN:
        return None
    from scipy.stats import t  # slow to import

    freedom, error = data.size - 1, float(data.std(ddof=1)) / math.sqrt(data.size)
    return float((t.ppf(1 - level / 2, freedom) + t.ppf(power, freedom)) * error)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number by Holm's step-down rule (1979); the order is kept.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    results = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        results[index] = running
    return results


def _sign_flip_test(differences: NDArray[np.float64], resamples: int, seed: int) -> float:
    """Return the two-sided p-value of differences that would be symmetric around zero, were the runs alike.

    Exact if there are no more patterns of signs than ``resamples``, as up to 13 questions that changed. Else
    the observed pattern counts as one of them, so it is never 0 (Phipson & Smyth 2010).
    """
    from scipy.stats import permutation_test  # slow to import

    nonzero = differences[np.abs(differences) > _EQUAL_WITHIN]  # flipping a zero changes nothing
    if nonzero.size < 2:
        return 1.0

    # Rounded, since patterns with the same sum must tie with the observed one: a third three times is not
    # quite one, and without ties a difference of 0 would not have the p-value 1.
    def mean(values: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        return np.asarray(np.round(np.mean(values, axis=axis), DIGITS))

    test = permutation_test(
        (nonzero,),
        mean,
        permutation_type="samples",
        n_resamples=resamples,
        batch=_batch(nonzero),
        rng=np.random.default_rng(derive_seed("sign-flip", seed)),
    )
    return float(test.pvalue)


def _batch(data: NDArray[np.float64]) -> int:
    """Return how many resamples may be held at once."""
    return max(1, _CELLS // data.size)


def _require_same_questions(first: Mapping[str, float], second: Mapping[str, float]) -> None:
    if not first and not second:
        raise DataError("neither run has a scored question: there is nothing to compare.")
    for name, missing in (("second", first.keys() - second.keys()), ("first", second.keys() - first.keys())):
        if missing:
            raise DataError(
                f"{len(missing)} question(s) are missing from the {name} run, such as '{min(missing)}': a "
                "paired comparison needs the same questions in both; run both on the same file with the "
                "same limit."
            )
    for name, scores in (("first", first), ("second", second)):
        for question, value in scores.items():
            if not math.isfinite(value):
                raise DataError(
                    f"question '{question}' of the {name} run has the score {value}: expected a finite "
                    "number."
                )
