"""List the methods in a line each, or show one: options with defaults, their other names, presets.

corag methods
corag methods ircot
corag methods my_method.py:my_method
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from rich.console import Console
from rich.table import Table

from core.errors import ConfigError
from core.help import descriptions
from core.method import MethodConfig
from eval.experiment.own_methods import PAGE, Entry, short_name
from eval.experiment.registry import MethodOptions, check_names, methods_of
from eval.tables.printing import wide_console

_SHOWN = 40  # characters of a default, which may be a whole prompt


@dataclass(frozen=True)
class MethodsOptions:
    """Options of 'corag methods'.

    Attributes:
        name: the method to show, which may be one of your own (FILE.py:FUNCTION); without it, all are listed.
    """

    name: str = ""

    def __post_init__(self) -> None:
        if "," in self.name:
            raise ConfigError(f"one method is shown at a time, but '{self.name}' was given.")


def main(config: MethodsOptions) -> int:
    """Print the list, or what there is to know of one method."""
    console = wide_console(150, markup=False)
    known = methods_of(MethodOptions.extended([config.name]))
    if not config.name:
        console.print(listed(known))
        console.print(f"'corag methods NAME' shows a method's options and presets. One of your own: {PAGE}.")
        return 0
    name = short_name(config.name)
    check_names([name], known)
    show(console, name, known[name])
    return 0


def listed(known: Mapping[str, Entry]) -> Table:
    """Return the methods in a line each, with their presets."""
    table = Table("method", "what", "presets", box=None, padding=(0, 2, 0, 0))
    for name, entry in known.items():
        table.add_row(name, entry.summary, ", ".join(getattr(entry.config, "PRESETS", {})))
    return table


def show(console: Console, name: str, entry: Entry) -> None:
    """Print a method's options, one a line, then its presets and aliases as a command line has them."""
    console.print(f"{name}: {entry.summary}")
    console.print(options_table(name, entry.config))
    for preset, values in getattr(entry.config, "PRESETS", {}).items():
        stated = " ".join(f"--{name}.{option} {value}" for option, value in values.items())
        console.print(f"--{name}.preset {preset} stands for {stated or 'the defaults'}", soft_wrap=True)
    for alias, option in getattr(entry.config, "ALIASES", {}).items():
        console.print(f"--{name}.{alias} is --{name}.{option}")
    if not entry.searches:
        console.print("It needs no index.")


def options_table(name: str, config: type[MethodConfig]) -> Table:
    """Return a method's options with their defaults and what the docstrings say of them."""
    table = Table("option", "default", "what", box=None, padding=(0, 2, 0, 0))
    said, defaults = dict(descriptions(config)), config()
    for option in fields(config):
        default = " ".join(str(getattr(defaults, option.name)).split())
        clipped = default if len(default) <= _SHOWN else default[: _SHOWN - 1] + "…"
        table.add_row(f"--{name}.{option.name}", clipped or '""', said.get(option.name, ""))
    return table
