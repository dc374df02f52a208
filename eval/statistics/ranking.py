"""Choosing among candidates: what the best choice, and a ranker's, would score; how well its scores tell.

A question has n candidates, each with a value (a fraction) and with scores of rankers. Figures "at k" are
expectations over all subsets of k of the n: exact, so without the noise of drawing some, and unbiased for k
fresh samples (as pass@k of Chen et al. 2021, arXiv 2107.03374, is for right and wrong). That holds where no
candidate differs from the others in how it was made. Scores: higher is better; one that is not there (NaN) is
the worst. Of equal scores each is as likely chosen.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from corag.core.seeds import derive_seed
from eval.statistics.intervals import Interval

Floats = NDArray[np.float64]

RESAMPLES = 2000
_TOO_FEW = 0.05  # a figure that so many resamples do not have gets no interval


def pass_at(values: Sequence[float], k: int) -> float:
    """Return what the best of k candidates is worth on average: an oracle's choice.

    ``values``: of all n candidates. For k above n, of all of them.

    >>> pass_at([1, 0, 0, 0], 1), pass_at([1, 0, 0, 0], 2), pass_at([1, 0, 0, 0], 8)
    (0.25, 0.5, 1.0)
    """
    return selection_value(values, values, k)


def selection_value(scores: Sequence[float], values: Sequence[float], k: int) -> float:
    """Return what the candidate of the highest score among k is worth on average.

    >>> selection_value([3, 2, 1], [0, 1, 1], 2)  # two of the three pairs have the first, which wins
    0.333...
    """
    n, k = len(values), min(k, len(values))
    worth: dict[float, list[float]] = defaultdict(list)
    for score, value in zip(scores, values, strict=True):
        worth[-math.inf if math.isnan(score) else score].append(value)
    expectation, better = 0.0, 0
    for score in sorted(worth, reverse=True):
        ties = worth[score]
        # The best of the subset is one of these: none that is better is in it, and not only worse ones.
        ways = math.comb(n - better, k) - math.comb(n - better - len(ties), k)
        expectation += ways / math.comb(n, k) * sum(ties) / len(ties)
        better += len(ties)
    return expectation


def vote_value(answers: Sequence[Hashable], values: Sequence[float], k: int) -> float:
    """Return what the most frequent answer among k is worth on average (self-consistency, Wang et al. 2023).

    ``answers``: as they are compared; those that are false, such as "", have no votes. Of equally frequent
    answers the first wins, which in a random order is any of them.
    """
    n, k = len(values), min(k, len(values))
    worth: dict[Hashable, list[float]] = defaultdict(list)
    for answer, value in zip(answers, values, strict=True):
        worth[answer or None].append(value)
    blank = worth.pop(None, [])
    sizes = {answer: len(group) for answer, group in worth.items()}
    expectation = math.comb(len(blank), k) * (sum(blank) / len(blank)) if blank else 0.0
    for answer, group in worth.items():
        others = [size for other, size in sizes.items() if other != answer]
        for votes in range(1, min(k, len(group)) + 1):
            rest = _ways_to_lose(others, votes, k - votes, len(blank))
            expectation += math.comb(len(group), votes) * rest * sum(group) / len(group)
    return expectation / math.comb(n, k)


def _ways_to_lose(sizes: Sequence[int], votes: int, seats: int, blank: int) -> float:
    """Count how ``seats`` of the others can be drawn with none having more than ``votes``.

    A draw with t others of just as many counts 1 / (t + 1): so often the one that is asked for comes first.
    ``sizes``: of the other answers; ``blank``: how many have no votes.
    """
    ways: dict[tuple[int, int], int] = {(0, 0): 1}  # by filled seats and ties
    for size in sizes:
        further: dict[tuple[int, int], int] = defaultdict(int)
        for (filled_seats, ties), count in ways.items():
            for more in range(min(votes, size, seats - filled_seats) + 1):
                further[filled_seats + more, ties + (more == votes)] += count * math.comb(size, more)
        ways = further
    return sum(
        count * math.comb(blank, seats - filled_seats) / (ties + 1)
        for (filled_seats, ties), count in ways.items()
        if seats - filled_seats <= blank
    )


def vote_shares(answers: Sequence[str]) -> list[float]:
    """Return for each answer the share of all candidates that give it: 0 for blank ones.

    >>> vote_shares(["a", "b", "a", ""])
    [0.5, 0.25, 0.5, 0.0]
    """
    counts = Counter(filter(None, answers))
    return [counts[answer] / len(answers) for answer in answers]


def auc(scores: Floats, right: NDArray[np.bool_]) -> float:
    """Return how often a right candidate has a higher score than a wrong one, a tie counting half.

    The area under the ROC curve, over all pairs. NaN without a right one or without a wrong one.
    """
    _, level = np.unique(np.nan_to_num(scores, nan=-np.inf), return_inverse=True)
    good = np.bincount(level, right)
    bad = np.bincount(level, ~right)
    pairs = good.sum() * bad.sum()
    below = np.cumsum(bad) - bad
    return float((good * (below + bad / 2)).sum() / pairs) if pairs else math.nan


def resample(
    n: int,
    figure: Callable[[Floats], float],
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """Return a figure and its percentile bootstrap interval over n questions; None if it has no value.

    ``figure``: of how often each question counts, float64 [n]. The same numbers are drawn for every figure of
    n questions, so figures are paired. Without an interval if many resamples have no value.
    """
    value = figure(np.ones(n))
    if math.isnan(value):
        return None
    figures = np.array([figure(counts) for counts in _counts(n, resamples, seed)])
    if n < 2 or np.isnan(figures).mean() > _TOO_FEW:
        return Interval(value, None, None, n)
    low, high = np.nanquantile(figures, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), n)


def _counts(n: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Yield how often each of n questions is drawn."""
    rng = np.random.default_rng(derive_seed("questions", seed))
    for _ in range(resamples):
        yield np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)


def share_of_gain(result: Floats, least: Floats, most: Floats, counts: Floats) -> float:
    """Return which part of the way from ``least`` to ``most`` is gone; NaN where there is no way to go.

    All are values by question; ``counts``: how often each question counts.
    """
    gain = float(counts @ (most - least))
    return float(counts @ (result - least)) / gain if gain > 1e-9 else math.nan
