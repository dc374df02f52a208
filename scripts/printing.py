"""The console that tables are printed on, and texts of any kind on a line of it."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def wide_console(columns: int = 200, *, markup: bool = True) -> Console:
    """Return the terminal's console.

    So many columns wide where there is no terminal, so that no figure is cut off.
    """
    return Console(width=None if Console().is_terminal else columns, highlight=False, markup=markup)


def one_line(text: str, columns: int) -> str:
    r"""Write a text on one line of so many columns: white space squeezed, what is not printable as escapes,
    the rest cut off.

    >>> one_line("Is it\n Oslo\x1b[2J, or is it not?", 20)
    'Is it Oslo\\x1b[2J, …'
    """
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in " ".join(text.split())
    )
    line = Text(shown)  # which knows how many columns a character takes
    line.truncate(columns, overflow="ellipsis")
    return line.plain
