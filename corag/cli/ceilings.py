"""'corag table --ceiling': the score of the best choice among a run's candidates, and of each ranker's.

For runs that keep the answers of all their candidates, such as chains.
"""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from eval.statistics.intervals import Comparison, Interval
from eval.tables.candidates import Metric
from eval.tables.ceiling import Ceiling, Ceilings
from eval.tables.columns import percent
from eval.tables.printing import figures_table, wide_console


def print_ceilings(ceilings: Ceilings) -> None:
    """Print of each run what choices are worth, then how well scores tell right from wrong."""
    console = wide_console(190)
    for name, each in ceilings.runs.items():
        count = f"{each.questions} questions, {each.candidates:.1f} candidates each"
        console.print(f"{name}: {each.folder} ({count})", soft_wrap=True)
        console.print(choices_table(each, ceilings.metric))
        console.print(calibration_table(each))
    for note in [*ceilings.notes, *remarks(ceilings)]:
        console.print(note, soft_wrap=True)


def choices_table(ceiling: Ceiling, metric: Metric) -> Table:
    """Return what the oracle's and each ranker's choice is worth, by the number of candidates."""
    measure = {"em": "EM", "f1": "F1"}[metric]
    sizes = [f"{measure}@{k}" for k in ceiling.sizes]
    table = figures_table(
        "choice", right=[*sizes, f"minus {ceiling.base_name}", "p (Holm)", "of the oracle's gain"]
    )
    base = ["-"] * (len(sizes) - 1) + [percent(ceiling.base)]
    table.add_row(ceiling.base_name, *base, "", "", "")
    table.add_row("oracle", *map(percent, ceiling.oracle.values()), _points(ceiling.oracle_gain), "", "")
    for each in ceiling.rankers:
        figures = [
            percent(each.values_by_size.get(k)) if k in each.values_by_size else "-" for k in ceiling.sizes
        ]
        p = "-" if each.p_holm is None else f"{each.p_holm:.4f}"
        table.add_row(Text(each.name), *figures, _points(each.gain), p, percent(each.share))
    return table


def calibration_table(ceiling: Ceiling) -> Table:
    """Return how well each ranker's scores tell right from wrong candidates."""
    table = figures_table("ranker", right=["AUC in a question", "AUC pooled", "ECE"])
    table.add_column("chances")
    for each in ceiling.rankers:
        if not each.chances:
            continue  # the run's own choice, of which no scores are kept
        figures = map(_fraction, (each.auc, each.pooled_auc, each.calibration))
        table.add_row(Text(each.name), *figures, each.chances)
    return table


def remarks(ceilings: Ceilings) -> list[str]:
    """Return how to read the tables."""
    return [
        f"Scorer: {ceilings.scoring}. @k: expected over all subsets of k candidates, in percent, which is "
        "unbiased for k fresh ones where all are made alike. 95% intervals by questions; gains and shares "
        "are paired.",
        "AUC: how often a right candidate has a higher score than a wrong one; 0.5 is chance. ECE: expected "
        "calibration error over 10 bins of equal width. Scores that are no chances became some by isotonic "
        "regression, each half of the questions by the other half.",
    ]


def _points(gain: Comparison) -> str:
    return percent(gain.difference)


def _fraction(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    bounds = (
        "" if interval.low is None or interval.high is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
    )
    return f"{interval.mean:.2f}{bounds}"
