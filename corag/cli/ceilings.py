"""'corag table --ceiling': the score of the best choice among a run's candidates, and of each ranker's.

For runs that keep the answers of all their candidates, such as chains.
"""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from eval.statistics.intervals import Interval
from eval.tables.candidates import Metric
from eval.tables.ceiling import Ceiling, Ceilings
from eval.tables.columns import percent
from eval.tables.printing import figures_table, wide_console

_NAME = 14  # columns of a choice that is not folded


def print_ceilings(ceilings: Ceilings) -> None:
    """Print of each run what choices are worth, and how well scores tell right from wrong."""
    console = wide_console(190)
    for name, each in ceilings.runs.items():
        failed = f", {each.failure_count} failed" * bool(each.failure_count)
        count = f"{each.questions} questions{failed}, {each.candidates:.1f} candidates each"
        console.print(f"{name}: {each.folder} ({count})", soft_wrap=True)
        console.print(choices_table(each, ceilings.metric))
        console.print(gains_table(each))
    reading = (
        f"Scorer: {ceilings.scoring}. @k: expected over all subsets of k candidates, in percent, which is "
        "unbiased for k fresh ones where all are made alike. AUC: how often a right candidate of a question "
        "has a higher score than a wrong one; 0.5 is chance. 95% intervals by questions; gains and shares "
        "are paired."
    )
    for note in [*ceilings.notes, reading]:
        console.print(note, soft_wrap=True)


def choices_table(ceiling: Ceiling, metric: Metric) -> Table:
    """Return what the oracle's and each ranker's choice is worth, by the number of candidates."""
    sizes = ceiling.sizes
    table = figures_table("choice", right=[f"{metric.upper()}@{k}" for k in sizes], min_width=_NAME)
    table.add_row(ceiling.base_name, *["-"] * (len(sizes) - 1), _figure(ceiling.base))
    table.add_row("oracle", *map(_figure, ceiling.oracle.values()))
    for each in ceiling.rankers:
        table.add_row(Text(each.name), *(_figure(each.values_by_size.get(k)) for k in sizes))
    return table


def gains_table(ceiling: Ceiling) -> Table:
    """Return what choosing among all candidates gains, and how well scores tell right from wrong ones."""
    heads = (f"minus {ceiling.base_name}", "p (Holm)", "of the oracle's gain", "AUC")
    table = figures_table("choice", right=heads, min_width=_NAME)
    table.add_row("oracle", percent(ceiling.oracle_gain.difference))
    for each in ceiling.rankers:
        p = "-" if each.p_holm is None else f"{each.p_holm:.4f}"
        gain, share = percent(each.gain.difference), percent(each.share)
        table.add_row(Text(each.name), gain, p, share, _fraction(each.auc))
    return table


def _figure(interval: Interval | None) -> str:
    return percent(interval).replace(" [", "\n[")


def _fraction(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{interval.mean:.2f}"
    return f"{interval.mean:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
