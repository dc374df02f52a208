"""Say what the best choice among a run's candidates would score, and how near each ranker comes.

    corag ceiling runs/test/corag-1a2b3c4d --baseline runs/test/corag-5e6f7a8b
    corag ceiling runs/sweep/corag-N-4 runs/sweep/corag-N-8 --metric f1 --json

For runs that keep the answers of all their candidates, such as chains. No model is started.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.option_names import NameOrPath
from eval.statistics.intervals import Comparison, Interval
from eval.tables.candidates import Metric
from eval.tables.ceiling import Ceiling, Ceilings, measure_ceilings
from eval.tables.columns import percent
from eval.tables.printing import figures_table, wide_console
from eval.tables.runs import Runs


@dataclass(frozen=True)
class CeilingOptions(Runs):
    """Options of 'corag ceiling'."""

    runs: list[NameOrPath] = field(default_factory=list)
    """one or more run folders whose method chose among candidates."""

    def usage(self) -> str:
        """The command line to write."""
        return "corag ceiling RUN RUN ..."

    baseline: str = ""
    """a further run that gains are measured over, such as a greedy one; without, they are over one
    candidate."""

    metric: Metric = "em"
    """what a choice is worth: "em" (then the oracle's figures are pass@k) or "f1". Candidates are right or
    wrong by EM in any case."""

    scorer: str = "auto"
    """how answers are scored; "auto" takes that of the first run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline and Path(self.baseline).resolve() in {Path(run).resolve() for run in self.runs}:
            raise ConfigError(
                "the baseline is among the runs: gains are over another run, or, without --baseline, over "
                "one candidate."
            )


def main(config: CeilingOptions) -> CommandResult:
    """Print the oracle and the rankers of each run."""
    baseline = Path(config.baseline) if config.baseline else None
    ceilings = measure_ceilings(config.by_name(), baseline, config.metric, config.scorer)
    console = wide_console(190)
    for name, ceiling in ceilings.runs.items():
        show(console, name, ceiling, ceilings.metric)
    for note in [*ceilings.notes, *remarks(ceilings)]:
        console.print(note, soft_wrap=True)
    return CommandResult(0, [ceilings.to_json()])


def show(console: Console, name: str, ceiling: Ceiling, metric: Metric) -> None:
    """Print one run: what choices are worth, then how well scores tell right from wrong."""
    title = (
        f"{name}: {ceiling.folder} ({ceiling.questions} questions, {ceiling.candidates:.1f} candidates each)"
    )
    console.print(title, soft_wrap=True)
    console.print(choices_table(ceiling, metric))
    console.print(calibration_table(ceiling))


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
