"""Runs against a baseline on the same questions: paired differences and p-values corrected for their number.

Also which questions two runs disagree on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

from corag.core.errors import ConfigError
from eval.scoring.rows import Measures
from eval.statistics.intervals import Comparison, Interval, compare_paired, holm, interval_record

FailedIds = Mapping[str, Collection[str]]
"""The ids of failed questions by run."""

LEVEL = 0.05
"""A p-value below it is called significant."""
_EQUAL_WITHIN = 1e-9  # means closer than this are equal


@dataclass(frozen=True, slots=True)
class Against:
    """One run minus the baseline in one measure.

    Attributes:
        run: the run.
        measure: the measure.
        comparison: its difference from the baseline.
        p_holm: the p-value, corrected for all tests made with this baseline; None where there is no test,
            since half of the questions failed.
        failure_count: questions of the comparison that failed in the run or the baseline, and count as wrong.
    """

    run: str
    measure: str
    comparison: Comparison
    p_holm: float | None
    failure_count: int = 0

    @property
    def p_value(self) -> float | None:
        """The p-value before correction; None where there is no test."""
        return None if self.p_holm is None else self.comparison.p_value

    @property
    def is_significant(self) -> bool:
        """Whether there is a test, and its corrected p-value is below :data:`LEVEL`."""
        return self.p_holm is not None and self.p_holm < LEVEL

    @property
    def warning(self) -> str:
        """What a reader must know of the line; "" for nothing."""
        n = self.comparison.difference.n
        return f"{self.failure_count:,} of {n:,} failed" if self.failure_count else ""

    def to_json(self) -> dict[str, Any]:
        """Return the figures as fractions, rounded."""
        comparison = self.comparison
        return interval_record("difference", comparison.difference) | {
            "p_value": _round(self.p_value),
            "p_value_holm": _round(self.p_holm),
            "detectable": _round(comparison.detectable),
            "n": comparison.difference.n,
            "failed": self.failure_count,
        }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


@dataclass(frozen=True, slots=True)
class Leading:
    """The highest runs in a measure, and how far the others are known to be below them.

    Attributes:
        measure: the measure.
        best: the runs with the highest mean over the questions that all runs share: several where they tie.
        mean: that mean.
        worse: runs that are significantly below, by Holm's rule over all ``tests``.
        even: runs that are not.
        untested: runs without a test, since half of the questions failed.
        sizes: the fewest and the most questions of a test in this measure; of the best run without any.
        tests: how many were made with the first of the best as the baseline, in all measures.
        detectable: the largest of the differences that so many questions are likely to show; None if unknown.
    """

    measure: str
    best: Sequence[str]
    mean: float
    worse: Sequence[str]
    even: Sequence[str]
    untested: Sequence[str]
    sizes: tuple[int, int]
    tests: int
    detectable: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the leader as a JSON object."""
        return {
            "best": list(self.best),
            "significantly_worse": list(self.worse),
            "not_significantly_worse": list(self.even),
            "not_tested": list(self.untested),
        }


def find_leaders(
    runs: Mapping[str, Measures],
    failed_ids: FailedIds = MappingProxyType({}),
) -> dict[str, Leading]:
    """Return in every measure that several runs have the highest of them, and how sure that is.

    Means are over the questions that all of these are measured on, as the runs of several indexes are not by
    recall: on questions of its own the highest would have had the easiest. A measure without any is left out.
    The p-values are those of :func:`against_baseline` with the highest run as the baseline.
    """
    scored_runs = {run: measures for run, measures in runs.items() if any(measures.values())}
    tests: dict[str, Sequence[Against]] = {}
    leaders = {}
    for measure in dict.fromkeys(name for measures in scored_runs.values() for name in measures):
        values = {run: each[measure] for run, each in scored_runs.items() if each.get(measure)}
        shared = set[str]().union(*values.values()).intersection(*values.values())
        if len(values) > 1 and shared:
            means = {
                run: math.fsum(map(each.__getitem__, shared)) / len(shared) for run, each in values.items()
            }
            highest = max(means, key=means.__getitem__)
            if highest not in tests:
                tests[highest] = _test_others(scored_runs, highest, failed_ids, intervals=False)
            best = [
                run
                for run, mean in means.items()
                if math.isclose(mean, means[highest], abs_tol=_EQUAL_WITHIN)
            ]
            others = [run for run in means if run not in best]
            leaders[measure] = _leading(measure, best, means[highest], others, len(shared), tests[highest])
    return leaders


def _leading(
    measure: str,
    best: Sequence[str],
    mean: float,
    others: Sequence[str],
    n: int,
    against: Sequence[Against],
) -> Leading:
    """Return the best runs in a measure, given all tests with the first of them as the baseline.

    ``n``: the questions that all runs share in this measure.
    """
    tests = [one for one in against if one.measure == measure and one.run in others]
    worse = [one for one in tests if one.is_significant and one.comparison.difference.mean < 0]
    untested_runs = [one.run for one in tests if one.p_holm is None]
    settled_runs = {*untested_runs, *(one.run for one in worse)}
    sizes = [one.comparison.difference.n for one in tests if one.p_holm is not None] or [n]
    return Leading(
        measure,
        best,
        mean,
        [one.run for one in worse],
        [one.run for one in tests if one.run not in settled_runs],
        untested_runs,
        (min(sizes), max(sizes)),
        sum(one.p_holm is not None for one in against),
        max((one.comparison.detectable for one in tests if one.comparison.detectable), default=None),
    )


def against_baseline(
    runs: Mapping[str, Measures],
    baseline: str,
    failed_ids: FailedIds = MappingProxyType({}),
    *,
    intervals: bool = True,
) -> list[Against]:
    """Compare every other run with the baseline in every measure that both have.

    Holm's correction is over all of these tests: a reader of a table looks at all of them. ``failed_ids`` are
    counted in each comparison; where they are half of its questions, there is no test: a p-value would say
    how sure it is that an engine broke down, not which method is better. Without ``intervals`` there are
    p-values only, in half the time.

    Raises :class:`ConfigError` if no run has a measure in common with the baseline, and
    :class:`corag.core.errors.DataError` if they were not measured on the same questions.
    """
    return _require_any(baseline, _test_others(runs, baseline, failed_ids, intervals=intervals))


def _test_others(
    runs: Mapping[str, Measures], baseline: str, failed_ids: FailedIds, *, intervals: bool
) -> list[Against]:
    """Do as :func:`against_baseline`, but return no tests where there is nothing to compare."""
    ours = runs[baseline]
    comparisons = {
        (run, measure): comparison
        for run, theirs in runs.items()
        if run != baseline
        for measure, values in theirs.items()
        if measure in ours
        if (comparison := _compare_measured(measure, ours[measure], values, interval=intervals))
    }
    return _adjust_p_values(baseline, comparisons, runs, failed_ids)


def _require_any(baseline: str, tests: list[Against]) -> list[Against]:
    if not tests:
        raise ConfigError(
            f"nothing can be compared with '{baseline}': no other run has a measure in common with it. "
            "Questions without gold answers and supporting passages are not scored."
        )
    return tests


def against_each_other(
    runs: Mapping[str, Measures], failed_ids: FailedIds = MappingProxyType({})
) -> dict[str, list[Against]]:
    """Return what :func:`against_baseline` does for every run as the baseline, each pair resampled once."""
    comparisons: dict[str, dict[tuple[str, str], Comparison]] = {run: {} for run in runs}
    for first, second in combinations(runs, 2):
        for measure, ours in runs[first].items():
            theirs = runs[second].get(measure)
            if theirs is not None and (comparison := _compare_measured(measure, ours, theirs)):
                comparisons[first][second, measure] = comparison
                comparisons[second][first, measure] = mirror(comparison)
    return {
        baseline: _require_any(baseline, _adjust_p_values(baseline, tests, runs, failed_ids))
        for baseline, tests in comparisons.items()
    }


# All other measures may lack questions in one run: those whose gold passages its index has not.
_OF_ANSWERS = ("em", "f1", "accuracy")


def _compare_measured(
    measure: str, first: Mapping[str, float], second: Mapping[str, float], *, interval: bool = True
) -> Comparison | None:
    """Compare two runs in a measure: in those of passages on the questions whose gold both indexes have.

    Returns None if there is no such question.
    """
    shared_ids = first.keys() & second.keys()
    if measure not in _OF_ANSWERS:
        if not shared_ids:
            return None
        first, second = ({name: values[name] for name in shared_ids} for values in (first, second))
    return compare_either_way(first, second, interval=interval)


def compare_either_way(
    first: Mapping[str, float], second: Mapping[str, float], *, interval: bool = True
) -> Comparison:
    """Compare two runs' scores by question id; exchanging them gives the :func:`mirror` figures to the bit.

    Raises :class:`DataError` unless both runs scored exactly the same questions, at least one.
    """
    # Resampling draws other numbers for the differences with their signs changed. So it is done in one
    # direction whatever is asked for: that in which the mean difference is above 0, or, if it is 0, the first
    # difference by question id.
    differences = [second[question] - first[question] for question in sorted(first.keys() & second.keys())]
    downwards = (sum(differences) or next(filter(None, differences), 0.0)) < 0
    if downwards and first.keys() == second.keys():
        return mirror(compare_paired(second, first, interval=interval))
    return compare_paired(first, second, interval=interval)


def mirror(comparison: Comparison) -> Comparison:
    """Return the comparison of the same two runs the other way round."""
    difference = comparison.difference
    # Subtracted from 0, not negated: a table would print "-0.0".
    low, high = (None if bound is None else 0.0 - bound for bound in (difference.high, difference.low))
    return replace(comparison, difference=Interval(0.0 - difference.mean, low, high, difference.n))


def disagreements(first: Measures, second: Measures) -> tuple[list[str], list[str]]:
    """Return the questions that only the first run got right by EM, and those that only the second did.

    Both are in the report's order: the farther apart in F1 the earlier, and else as the first run has them.
    """

    def only_right(one: Measures, other: Measures) -> list[str]:
        names = [name for name in first.get("em", ()) if one["em"][name] > other["em"][name]]
        return sorted(names, key=lambda name: -abs(first["f1"][name] - second["f1"][name]))

    return only_right(first, second), only_right(second, first)


def _adjust_p_values(
    baseline: str,
    comparisons: Mapping[tuple[str, str], Comparison],
    runs: Mapping[str, Measures],
    failed_ids: FailedIds,
) -> list[Against]:
    """Correct the p-values of all comparisons with one baseline."""
    counts = {
        (run, measure): len(
            (set(failed_ids.get(run, ())) | set(failed_ids.get(baseline, ())))
            & runs[run][measure].keys()
            & runs[baseline][measure].keys()
        )
        for run, measure in comparisons
    }
    keys = [key for key, each in comparisons.items() if 2 * counts[key] < each.difference.n]
    p_values = dict(zip(keys, holm([comparisons[key].p_value for key in keys]), strict=True))
    return [
        Against(run, measure, comparison, p_values.get((run, measure)), counts[run, measure])
        for (run, measure), comparison in comparisons.items()
    ]
