"""Runs against a baseline on the same questions: paired differences and p-values corrected for their number.

Also which questions two runs disagree on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from core.errors import ConfigError
from eval.scoring.rows import Measures
from eval.statistics.intervals import Comparison, Interval, compare_paired, holm, interval_record


@dataclass(frozen=True, slots=True)
class Against:
    """One run minus the baseline in one measure; ``p_holm`` is corrected for all comparisons made with it."""

    run: str
    measure: str
    comparison: Comparison
    p_holm: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures as fractions, rounded."""
        comparison = self.comparison
        return interval_record("difference", comparison.difference) | {
            "p_value": round(comparison.p_value, 4),
            "p_value_holm": round(self.p_holm, 4),
            "detectable": None if comparison.detectable is None else round(comparison.detectable, 4),
            "n": comparison.difference.n,
        }


def against_baseline(runs: Mapping[str, Measures], baseline: str) -> list[Against]:
    """Compare every other run with the baseline in every measure that both have.

    Holm's correction is over all of these tests: a reader of a table looks at all of them. Raises
    :class:`ConfigError` if no run has a measure in common with the baseline, and
    :class:`core.errors.DataError` if they were not measured on the same questions.
    """
    ours = runs[baseline]
    return _adjusted(
        baseline,
        {
            (run, measure): compare_either_way(ours[measure], values)
            for run, theirs in runs.items()
            if run != baseline
            for measure, values in theirs.items()
            if measure in ours
        },
    )


def against_each_other(runs: Mapping[str, Measures]) -> dict[str, list[Against]]:
    """Return what :func:`against_baseline` does for every run as the baseline, each pair resampled once."""
    compared: dict[str, dict[tuple[str, str], Comparison]] = {run: {} for run in runs}
    for first, second in combinations(runs, 2):
        for measure, ours in runs[first].items():
            if measure in runs[second]:
                found = compare_either_way(ours, runs[second][measure])
                compared[first][second, measure] = found
                compared[second][first, measure] = mirrored(found)
    return {baseline: _adjusted(baseline, tests) for baseline, tests in compared.items()}


def compare_either_way(first: Mapping[str, float], second: Mapping[str, float]) -> Comparison:
    """Compare two runs' scores by question id; exchanging them gives the :func:`mirrored` figures to the bit.

    Raises :class:`core.errors.DataError` unless both runs scored exactly the same questions, at least one.
    """
    # Resampling draws other numbers for the differences with their signs changed. So it is done in one
    # direction whatever is asked for: that in which the mean difference is above 0, or, if it is 0, the first
    # difference by question id.
    differences = [second[question] - first[question] for question in sorted(first.keys() & second.keys())]
    downwards = (sum(differences) or next(filter(None, differences), 0.0)) < 0
    if downwards and first.keys() == second.keys():
        return mirrored(compare_paired(second, first))
    return compare_paired(first, second)


def mirrored(comparison: Comparison) -> Comparison:
    """Return the comparison of the same two runs the other way round."""
    found = comparison.difference
    low, high = (None if bound is None else 0.0 - bound for bound in (found.high, found.low))  # never "-0.0"
    return replace(comparison, difference=Interval(0.0 - found.mean, low, high, found.n))


def disagreements(first: Measures, second: Measures) -> tuple[list[str], list[str]]:
    """Return the questions that only the first run got right by EM, and those that only the second did.

    Both are in the report's order: the farther apart in F1 the earlier, and else as the first run has them.
    """

    def only_right(one: Measures, other: Measures) -> list[str]:
        won = [name for name in first.get("em", ()) if one["em"][name] > other["em"][name]]
        return sorted(won, key=lambda name: -abs(first["f1"][name] - second["f1"][name]))

    return only_right(first, second), only_right(second, first)


def _adjusted(baseline: str, compared: Mapping[tuple[str, str], Comparison]) -> list[Against]:
    """Correct the p-values of all comparisons with one baseline. Raises :class:`ConfigError` without any."""
    if not compared:
        raise ConfigError(
            f"nothing can be compared with '{baseline}': no other run has a measure in common with it. "
            "Questions without gold answers and supporting passages are not scored."
        )
    adjusted = holm([comparison.p_value for comparison in compared.values()])
    return [
        Against(run, measure, comparison, p)
        for ((run, measure), comparison), p in zip(compared.items(), adjusted, strict=True)
    ]
