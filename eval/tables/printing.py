"""The console that commands print on, and the tables that several of them print."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from corag.core.language.text import printable
from eval.scoring.rows import MEASURES, measure_title
from eval.statistics.comparisons import Against
from eval.statistics.intervals import INTERVALS
from eval.tables.columns import COLUMNS, percent
from eval.tables.disagreements import Disagreements
from eval.tables.results import ResultsTable

MAX_WIDTH = 100  # columns of a question that is listed: its text, and a model's replies, may be of any length
_NAME_WIDTH = 16  # columns of a run's name that is not folded
# Columns that a narrow terminal can do without, by their names, the first to go first.
_SPARE_COLUMNS = ("steps", "searches", "calls", "computed_tokens", "seconds", "failed", "n", "recall")


class TextConsole(Console):
    """A console on which no text is markup or commands the terminal: of runs by a stranger, any name may be.

    So ``[2019]`` in a file's name stays, and ``:smile:`` too.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as any console does, and leave the commands to the console itself."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def render_text(draw: Callable[[Console], object]) -> str:
    """Return what ``draw`` prints on a console, as plain text as wide as the terminal, if there is one."""
    text = io.StringIO()
    # In a notebook a console would show what it prints instead of writing it.
    options = {"file": text, "force_terminal": False, "force_jupyter": False}
    draw(TextConsole(width=_terminal_width() or 200, **options))
    return text.getvalue().rstrip("\n")


def wide_console(columns: int = 200) -> Console:
    """Return the terminal's console; so many columns wide elsewhere, so that no figure is cut off."""
    return TextConsole(width=_terminal_width() or columns)


def _terminal_width() -> int | None:
    """Return how many columns the terminal has, or the environment's COLUMNS says; None without either."""
    console = Console()
    return console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdigit() else None


def one_line(text: str, columns: int) -> str:
    r"""Write a text on one line of so many columns.

    White space is squeezed, what is not printable becomes escapes, the rest is cut off.

    >>> one_line("Is it\n Oslo\x1b[2J, or is it not?", 20)
    'Is it Oslo\\x1b[2J, …'
    """
    visible = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in " ".join(text.split())
    )
    line = Text(visible)  # which knows how many columns a character takes
    line.truncate(columns, overflow="ellipsis")
    return line.plain


def figures_table(*labels: str, right: Sequence[str], min_width: int | None = None) -> Table:
    """Return a table whose last columns hold figures: flush right, never wrapped. Labels are folded."""
    table = Table()
    for label in labels:
        table.add_column(label, overflow="fold", min_width=min_width)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_results(table: ResultsTable, console: Console | None = None) -> None:
    """Print a table with all that must be known beside it, and the tests and means that it has."""
    console = console or wide_console()
    print_summaries(table, console)
    for sentence in table.headlines:
        console.print(sentence)
    for sentence in condition_lines(table):
        console.print(sentence, soft_wrap=True)
    if table.baseline:
        print_comparisons(console, table)
    for pair in table.disagreements:
        print_disagreements(console, pair)
    if table.means:
        print_means(console, table)


def print_summaries(table: ResultsTable, console: Console) -> None:
    """Print a line per run: on a narrow terminal with intervals below their means, and fewer columns."""
    names = [table.conditions.mark_name(each.method) for each in table.summaries]
    left_out = _print_fitting(console, names, main_columns(table))
    if left_out:
        console.print(f"Left out for want of room: {', '.join(left_out)} (CSV has them: to=csv, to_csv).")
    if columns := further_columns(table):
        _print_fitting(console, names, columns)


def main_columns(table: ResultsTable) -> dict[str, tuple[str, list[str]]]:
    """Return the heading and each run's figure, in words, of the columns of :data:`COLUMNS` by name."""
    return {
        column.name: (column.title(table.recall_at), [column.cell(each) for each in table.summaries])
        for column in COLUMNS
        if column.name not in MEASURES or (_is_scored(table) and table.shows(column.name))
    }


def further_columns(table: ResultsTable) -> dict[str, tuple[str, list[str]]]:
    """Return those of the further measures that some run has, likewise."""
    main = {column.name for column in COLUMNS}
    measures = dict.fromkeys(name for each in table.summaries for name in each.measures if name not in main)
    return {
        name: (
            MEASURES.get(name, name),
            [percent(each.measures.get(name)) for each in table.summaries],
        )
        for name in filter(table.shows, measures)
    }


def _is_scored(table: ResultsTable) -> bool:
    """Whether any run has any measure: without gold answers and passages there is none to show."""
    return any(mean is not None for summary in table.summaries for mean in summary.measures.values())


def _print_fitting(
    console: Console, names: Sequence[str], columns: Mapping[str, tuple[str, list[str]]]
) -> list[str]:
    """Print figures by run, their headings and values by the columns' names, so that they fit.

    Return the headings of the columns that there is no room for.
    """
    fitting, left_out = dict(columns), []
    short = [name[:_NAME_WIDTH] for name in names]

    def fits() -> bool:
        table = _figures_by_run(short, list(fitting.values()))
        return (
            Measurement.get(console, console.options.update(max_width=9999), table).maximum <= console.width
        )

    if not fits():
        fitting = {
            name: (heading, [value.replace(" [", "\n[") for value in values])
            for name, (heading, values) in fitting.items()
        }
    for name in filter(columns.__contains__, _SPARE_COLUMNS):
        if fits():
            break
        left_out.append(fitting.pop(name)[0])
    console.print(_figures_by_run(names, list(fitting.values())))
    return left_out


def _figures_by_run(names: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]]) -> Table:
    # Names are folded, so that there is room for the figures, of which none may be cut.
    width = min(_NAME_WIDTH, max(map(len, names)))
    table = figures_table("method", right=[heading for heading, _ in columns], min_width=width)
    for name, *figures in zip(names, *(values for _, values in columns), strict=True):
        table.add_row(name, *figures)
    return table


def condition_lines(table: ResultsTable) -> Iterator[str]:
    """Yield what a reader must know to trust the figures, besides the headlines."""
    if _is_scored(table):
        yield f"Scores in percent with 95% intervals: {INTERVALS}. Scorer: {table.scoring}."
    yield from table.conditions.common_lines
    for name, folder in table.runs.items():
        conditions = table.conditions.lines_by_run[name]
        yield f"{name}: {folder}{f' ({conditions})' if conditions else ''}"
    yield from (sentence for sentence in table.sentences if sentence not in table.cautions)


def comparison_cells(one: Against, recall_at: int) -> tuple[str, ...]:
    """Return a test against a baseline as cells: run, measure, difference, p, corrected, MDE, a warning."""
    least = one.comparison.detectable
    # Above 1 there are so few questions that no difference would be seen.
    power = "-" if least is None else ">100" if least > 1 else f"{100 * least:.1f}"
    ps = ("-" if p is None else f"{p:.4f}" for p in (one.p_value, one.p_holm))
    difference = percent(one.comparison.difference)
    return one.run, measure_title(one.measure, recall_at), difference, *ps, power, one.warning


def comparison_notes(comparisons: Sequence[Against]) -> Iterator[str]:
    """Yield what a reader of such cells must know."""
    if any(one.failure_count for one in comparisons):
        yield (
            "Failed questions count as wrong, of the run and of the baseline: a difference may be theirs. "
            "Where half of the questions failed, nothing is tested: run the same command again first, which "
            "asks them anew."
        )
    tests = sum(one.p_holm is not None for one in comparisons)
    yield (
        "Differences in points with 95% bootstrap intervals (exact where all differ alike), paired by "
        f"question; sign-flip test, Holm over {tests} tests. MDE: minimum detectable difference, in points "
        "(80% power, 5% level before correction; -: too few questions differ)."
    )


def print_comparisons(console: Console, table: ResultsTable) -> None:
    """Print every run's difference from the baseline in every measure."""
    warnings = ["warning"] * any(one.failure_count for one in table.against)
    tests = figures_table("method", "measure", right=["difference", "p", "p (Holm)", "MDE", *warnings])
    tests.title, tests.title_justify = f"minus {table.baseline}", "left"
    for one in table.against:
        *row, warning = comparison_cells(one, table.recall_at)
        tests.add_row(*row, *[warning] * len(warnings))
    console.print(tests)
    for sentence in comparison_notes(table.against):
        console.print(sentence, soft_wrap=True)


def print_disagreements(console: Console, pair: Disagreements) -> None:
    """Print on how many questions a run and the baseline disagree, and the examples with both answers."""
    lost_count, won_count = len(pair.lost_ids), len(pair.won_ids)
    examples = f" {len(pair.examples):,} of them:" if pair.examples else ""
    console.print(
        f"{pair.run} and {pair.baseline} disagree on {lost_count + won_count:,} of {pair.n:,} questions by "
        f"EM: only {pair.baseline} is right on {lost_count:,}, only {pair.run} on {won_count:,}.{examples}",
        soft_wrap=True,
    )
    width = max(map(len, ("gold", pair.baseline, pair.run)))
    for question, answers in pair.examples:
        lines = [one_line(f"{question.id}: {question.text}", MAX_WIDTH)]
        for name, text in {"gold": "; ".join(question.answers), **answers}.items():
            lines.append(f"  {name:<{width}}  {one_line(text, max(40, MAX_WIDTH - width - 4))}")
        for line in lines:
            console.print(line, soft_wrap=True)


def print_means(console: Console, table: ResultsTable) -> None:
    """Print mean and deviation of every group of runs."""
    (name, *heads), *lines = mean_cells(table)
    figures = figures_table(name, right=heads)
    for line in lines:
        figures.add_row(*line)
    console.print(figures)
    console.print(means_note(table), soft_wrap=True)


def mean_cells(table: ResultsTable) -> list[list[str]]:
    """Return the headings and lines of the means over runs."""
    measures = dict.fromkeys(name for mean in table.means.values() for name in mean)
    shown = [name for name in measures if name != "tokens" and table.shows(name)]
    lines = [["method", "runs", *(measure_title(name, table.recall_at) for name in shown), "tokens"]]
    for name, mean in table.means.items():
        tokens = mean["tokens"]
        deviation = "" if tokens.deviation is None else f" ± {tokens.deviation:,.0f}"
        cells = [percent(mean.get(measure)) for measure in shown]
        lines.append([name, str(tokens.n), *cells, f"{tokens.mean:,.0f}{deviation}"])
    return lines


def means_note(table: ResultsTable) -> str:
    """Return what the means are, and what of them is tested."""
    return (
        f"Mean ± standard deviation (n - 1) over runs that differ in their {table.over} only, each group "
        "called by its first run, and 95% bootstrap intervals over both questions and runs. Tests compare "
        "the means of these very runs: they draw questions anew, not runs."
    )
