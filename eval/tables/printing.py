"""The console that commands print on, and the tables that several of them print."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from core.runs.manifest import Manifest
from core.text import printable
from eval.scoring.rows import FURTHER
from eval.statistics.comparisons import Against
from eval.statistics.intervals import INTERVALS, Spread
from eval.tables.conditions import conditions, pages_note
from eval.tables.results import Means, Over, ResultsTable
from eval.tables.table import HEADINGS, Summary, cells, percent


class TextConsole(Console):
    """A console on which no text commands the terminal: of runs by a stranger, any name may try to."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as any console does, and leave the commands to the console itself."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def printed(show: Callable[[Console], object]) -> str:
    """Return what ``show`` prints on a console, as plain text wide enough for every figure."""
    text = io.StringIO()
    # In a notebook a console would show what it prints instead of writing it.
    show(TextConsole(file=text, width=200, highlight=False, force_terminal=False, force_jupyter=False))
    return text.getvalue().rstrip("\n")


def wide_console(columns: int = 200, *, markup: bool = True) -> Console:
    """Return the terminal's console; so many columns wide elsewhere, so that no figure is cut off."""
    return TextConsole(width=None if Console().is_terminal else columns, highlight=False, markup=markup)


def one_line(text: str, columns: int) -> str:
    r"""Write a text on one line of so many columns.

    White space is squeezed, what is not printable becomes escapes, the rest is cut off.

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


def figures_table(*left: str, right: Sequence[str]) -> Table:
    """Return a table whose last columns hold figures: flush right, never wrapped."""
    table = Table(*left)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_table_parts(table: ResultsTable, console: Console | None = None) -> None:
    """Print a table with its notes, and the tests and means that it has."""
    console = console or wide_console()
    print_table(table.summaries, table.runs, table.scoring, console)
    for note in table.notes:
        console.print(note, soft_wrap=True, markup=False)
    if table.baseline:
        print_comparisons(console, table.against, table.baseline, table.recall_at)
    if table.means:
        print_means(console, table.means, table.over, table.recall_at)


def print_table(
    summaries: Sequence[Summary], runs: Mapping[str, Path], scoring: str, console: Console | None = None
) -> None:
    """Print a line per run, with what a reader must know to trust it, which is read from the manifests."""
    console = console or wide_console()
    table = Table(caption_justify="left")
    # A long name is folded, so that there is room for the figures, of which none may be cut.
    table.add_column(HEADINGS[0], overflow="fold")
    for heading in HEADINGS[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for summary in summaries:
        name, *figures = cells(summary)
        table.add_row(Text(name), *figures)
    console.print(table)
    print_further(console, summaries)
    manifests = {name: Manifest.read(folder) for name, folder in runs.items()}
    shared, own = conditions(manifests)
    console.print(
        f"EM, F1 and recall@{summaries[0].recall_at} in percent with 95% intervals: {INTERVALS}. "
        f"Scorer: {scoring}."
    )
    note = pages_note(manifests[each.method] for each in summaries if "r_precision" in each.further)
    for line in [note, *shared] if note else shared:
        console.print(line, soft_wrap=True, markup=False)
    for summary in summaries:
        name = summary.method
        console.print(f"{name}: {runs[name]} ({own[name]})", soft_wrap=True, markup=False)
        for remark in _remarks(summary):
            console.print(f"{name}: {remark}", markup=False)


def print_further(console: Console, summaries: Sequence[Summary]) -> None:
    """Print the measures that this scorer or an option adds, if any."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.further))
    if names:
        table = figures_table("method", right=[FURTHER[name] for name in names])
        for summary in summaries:
            table.add_row(Text(summary.method), *(percent(summary.further.get(name)) for name in names))
        console.print(table)


def _remarks(summary: Summary) -> list[str]:
    """Say which questions of a run are not scored, or not measured, and that some failed."""
    said = []
    if summary.unscored:
        said.append(f"{summary.unscored} questions have no gold answers: not scored.")
    for measure, n in summary.measured_on_fewer.items():
        title = FURTHER.get(measure, measure)
        said.append(f"{title} is of {n} of {summary.n} questions, which can be measured by it.")
    if summary.recall is not None and summary.searches < 1 and summary.n > summary.failed:
        # Of a method that searches. A model that cannot keep to its form may still answer, by luck.
        often = f"only {summary.searches:.1f} times a question" if summary.searches else "not once"
        said.append(f"it searched {often}: the model did not do what the method asks of it.")
    if summary.estimated:
        said.append(
            "~ before its tokens: the server did not count them all, so they are estimated, one for four "
            "bytes of text (--model.tokenizer counts them)."
        )
    if summary.failed:
        said += [f"{summary.failed} failed:", *(f"  {line}" for line in summary.failures.commonest())]
    return said


def print_comparisons(console: Console, compared: Sequence[Against], baseline: str, recall_at: int) -> None:
    """Print every run's difference from the baseline in every measure."""
    table = figures_table(
        "method", "measure", right=(escape(f"minus {baseline}"), "p", "p (Holm)", "unseen below")
    )
    for one in compared:
        comparison = one.comparison
        least = comparison.detectable
        # Above 1 there are so few questions that no difference would be seen.
        unseen = "-" if least is None else "any" if least > 1 else f"{100 * least:.1f}"
        figures = percent(comparison.difference), f"{comparison.p_value:.4f}", f"{one.p_holm:.4f}", unseen
        table.add_row(Text(one.run), measure_title(one.measure, recall_at), *figures)
    console.print(table)
    console.print(
        "Differences in points with 95% bootstrap intervals, paired by question; sign-flip test, Holm over "
        f"{len(compared)} tests. A true difference under the last column's points is likely to go unseen "
        "(80% power, 5% level before correction).",
        soft_wrap=True,
    )


def print_means(console: Console, means: Means, over: Over, recall_at: int) -> None:
    """Print mean and deviation of every group of runs."""
    names = list(dict.fromkeys(name for mean in means.values() for name in mean))
    table = figures_table("method", right=["runs", *(measure_title(name, recall_at) for name in names)])
    for name, mean in means.items():
        shown = [_mean_and_deviation(mean.get(measure), measure) for measure in names]
        table.add_row(Text(name), str(mean["tokens"].n), *shown)
    console.print(table)
    console.print(
        f"Mean ± standard deviation (n - 1) over runs that differ in their {over} only, each group called by "
        "its first run. This is how far such runs scatter; how far other questions would take them is what "
        "the intervals above say.",
        soft_wrap=True,
    )


def _mean_and_deviation(value: Spread | None, measure: str) -> str:
    if value is None:
        return "-"
    scale, digits = (1, 0) if measure == "tokens" else (100, 1)
    deviation = "" if value.deviation is None else f" ± {scale * value.deviation:,.{digits}f}"
    return f"{scale * value.mean:,.{digits}f}{deviation}"


def measure_title(measure: str, recall_at: int) -> str:
    """Return what a table calls a measure."""
    return {"em": "EM", "f1": "F1", "recall": f"recall@{recall_at}", **FURTHER}.get(measure, measure)
