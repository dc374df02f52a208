"""List methods with their presets, and datasets with their scorers, in a line each.

corag list
corag run --help ircot                                         # all options of a method
corag run --method my_method.py:my_method --help my_method     # of one of your own
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from corag.core.options.classes import Options
from eval.datasets import DATASETS
from eval.experiment.own_methods import PAGE
from eval.experiment.registry import METHODS
from eval.scoring.scorers import default_scorer
from eval.tables.printing import wide_console


@dataclass(frozen=True)
class ListOptions(Options):
    """'corag list' has no options."""


def main(config: ListOptions) -> int:
    """Print the lists."""
    console = wide_console(150)
    methods = Table("method", "what", "presets", box=None, padding=(0, 2, 0, 0))
    for name, method in METHODS.items():
        methods.add_row(name, method.summary, ", ".join(method.config.PRESETS))
    datasets = Table("dataset", "what", "scorer", box=None, padding=(0, 2, 0, 0))
    for name, dataset in DATASETS.items():
        datasets.add_row(name, dataset.title, default_scorer(name).title)
    console.print(methods, "", datasets, "", sep="\n")
    console.print(f"'corag run --help METHOD' shows a method's options. One of your own: {PAGE}.")
    return 0
