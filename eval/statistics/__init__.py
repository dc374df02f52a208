"""How sure figures are: intervals of means, paired tests with their power, curves through a sweep's cells.

Everything resamples questions, never tokens or runs, with seeds of its own: the same scores give the same
figures in every process.
"""

from eval.statistics.comparisons import Against, against_baseline, against_each_other, disagreements
from eval.statistics.intervals import (
    Comparison,
    Interval,
    Spread,
    bootstrap_mean,
    compare_paired,
    holm,
    paired_power,
    spread,
)
from eval.statistics.scaling import CellScores, Curve, Estimate, Fit, best_under, fit_curve, pareto_set

__all__ = [
    "Against", "CellScores", "Comparison", "Curve", "Estimate", "Fit", "Interval", "Spread",
    "against_baseline", "against_each_other", "best_under", "bootstrap_mean", "compare_paired",
    "disagreements", "fit_curve", "holm", "paired_power", "pareto_set", "spread",
]  # fmt: skip
