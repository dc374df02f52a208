"""The console that tables are printed on."""

from __future__ import annotations

from rich.console import Console


def wide_console(columns: int = 200, *, markup: bool = True) -> Console:
    """Return the terminal's console; so many columns wide where there is no terminal, so that no figure is cut off."""
    return Console(width=None if Console().is_terminal else columns, highlight=False, markup=markup)
