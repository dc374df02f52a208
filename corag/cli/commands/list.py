"""List methods and datasets in a line each, or show one: a method's options and presets, a dataset's scorer.

corag list
corag list ircot
corag list my_method.py:my_method
corag list kilt_fever
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from corag.core.errors import ConfigError
from corag.core.help import Section
from corag.core.method import Method, MethodConfig
from corag.core.option_names import NameOrPath
from corag.core.options import Options
from eval.datasets import DATASETS
from eval.experiment.own_methods import PAGE, short_name
from eval.experiment.registry import METHODS, MethodOptions, check_names, methods_of
from eval.scoring.scorers import default_scorer
from eval.tables.printing import wide_console


@dataclass(frozen=True)
class ListOptions(Options):
    """Options of 'corag list'."""

    name: NameOrPath = ""
    """a method, which may be one of your own (FILE.py:FUNCTION), or a dataset; without it, all are listed."""

    def __post_init__(self) -> None:
        if "," in self.name:
            raise ConfigError(f"one method or dataset is shown at a time, but '{self.name}' was given.")


def main(config: ListOptions) -> int:
    """Print the lists, or the details of one method or dataset."""
    console = wide_console(150)
    if config.name in DATASETS and config.name not in METHODS:
        show_dataset(console, config.name)
        return 0
    methods = methods_of(MethodOptions.extend({"method": [config.name]}))
    if not config.name:
        console.print(methods_table(methods))
        console.print()
        console.print(datasets_table())
        console.print()
        console.print(f"'corag list NAME' shows one of them. A method of your own: {PAGE}.")
        return 0
    name = short_name(config.name)
    check_names([name], methods)
    show_method(console, name, methods[name])
    if name in DATASETS:  # a name of both
        console.print("\nThe dataset of this name:")
        show_dataset(console, name)
    return 0


def methods_table(methods: Mapping[str, Method]) -> Table:
    """Return the methods in a line each, with their presets."""
    table = Table("method", "what", "presets", box=None, padding=(0, 2, 0, 0))
    for name, method in methods.items():
        table.add_row(name, method.summary, ", ".join(method.config.PRESETS))
    return table


def datasets_table() -> Table:
    """Return the datasets that ``--dataset`` names in a line each, with their official scorers."""
    table = Table("dataset", "what", "scorer", box=None, padding=(0, 2, 0, 0))
    for name, dataset in DATASETS.items():
        table.add_row(name, dataset.title, default_scorer(name).title)
    return table


def show_dataset(console: Console, name: str) -> None:
    """Print a dataset's title and scorer, and what CoRAG's prompts say of its questions."""
    console.print(f"{name}: {DATASETS[name].title}")
    console.print(f"Scorer: {default_scorer(name).title}")
    if DATASETS[name].task:
        # A run states this for --corag.task unless the user does.
        console.print(f"Task, for 'corag.task': {DATASETS[name].task}", soft_wrap=True)


def show_method(console: Console, name: str, method: Method) -> None:
    """Print a method's options, one a line, then its presets and other names as a command line has them."""
    console.print(f"{name}: {method.summary}")
    console.print(options_table(name, method.config))
    for preset, values in method.config.PRESETS.items():
        options = " ".join(f"--{name}.{option} {value}" for option, value in values.items())
        console.print(f"--{name}.preset {preset} stands for {options or 'the defaults'}", soft_wrap=True)
    for alias, option in method.config.ALIASES.items():
        console.print(f"--{name}.{alias} is --{name}.{option}")
    if not method.searches:
        console.print("It needs no index.")


def options_table(name: str, config: type[MethodConfig]) -> Table:
    """Return a method's options with their defaults and their help."""
    table = Table("option", "default", "what", box=None, padding=(0, 2, 0, 0))
    for row in Section(f"{name}.", config, values=config()).rows():
        table.add_row(*row)
    return table
