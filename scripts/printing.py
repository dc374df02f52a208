"""The console that commands print on, and the tables that several of them print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.runs.manifest import Manifest
from core.types import Question
from eval.experiment.conditions import conditions, pages_note
from eval.scoring.rows import FURTHER
from eval.scoring.scorers import Scorer, scorer_title
from eval.tables.runs import figures, status, summarise_runs
from eval.tables.table import HEADINGS, Summary, cells, percent


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


def print_results(
    runs: Mapping[str, Path], questions: Sequence[Question], chosen: Scorer, recall_at: int
) -> int:
    """Print the table of some runs, then a line of JSON; return the exit status of their command."""
    summaries = summarise_runs(runs, questions, chosen, recall_at)
    aliases = Manifest.read(next(iter(runs.values()))).last.aliases
    print_table(summaries, runs, scorer_title(chosen, questions, aliases))
    print(json.dumps(figures(summaries, runs, chosen)))
    return status(summaries)


def print_table(summaries: Sequence[Summary], runs: Mapping[str, Path], scoring: str) -> None:
    """Print the table with what a reader must know to trust it, which is read from the manifests."""
    console = wide_console()
    table = Table(caption_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for summary in summaries:
        table.add_row(*cells(summary))
    console.print(table)
    print_further(console, summaries)
    manifests = {name: Manifest.read(folder) for name, folder in runs.items()}
    shared, own = conditions(manifests)
    recall_at = summaries[0].recall_at
    console.print(
        f"EM, F1 and recall@{recall_at} in percent with 95% bootstrap intervals (exact where all score "
        f"alike). Scorer: {scoring}."
    )
    if note := pages_note(manifests[each.method] for each in summaries if "r_precision" in each.further):
        console.print(note, soft_wrap=True, markup=False)
    for line in shared:
        console.print(line, soft_wrap=True, markup=False)
    for summary in summaries:
        console.print(
            f"{summary.method}: {runs[summary.method]} ({own[summary.method]})", soft_wrap=True, markup=False
        )
        if summary.unscored:
            console.print(
                f"{summary.method}: {summary.unscored} questions have no gold answers: not scored.",
                markup=False,
            )
        for measure, n in summary.measured_on_fewer.items():
            title = FURTHER.get(measure, measure)
            console.print(
                f"{summary.method}: {title} is of {n} of {summary.n} questions, which can be measured by it."
            )
        if summary.failed:
            console.print(
                f"{summary.method}: {summary.failed} failed, first: {summary.first_error}", markup=False
            )


def print_further(console: Console, summaries: Sequence[Summary]) -> None:
    """Print the measures that this scorer or an option adds, if any."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.further))
    if names:
        table = Table("method")
        for name in names:
            table.add_column(FURTHER[name], justify="right", no_wrap=True)
        for summary in summaries:
            table.add_row(summary.method, *(percent(summary.further.get(name)) for name in names))
        console.print(table)
