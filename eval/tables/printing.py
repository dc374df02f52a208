"""The console that commands print on, and the tables that several of them print."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from corag.core.callers import for_caller
from corag.core.text import printable
from eval.scoring.rows import FURTHER, measure_title
from eval.statistics.comparisons import Against
from eval.statistics.intervals import INTERVALS, Spread
from eval.tables.adapters import ALL_TRAINED, Untrained
from eval.tables.columns import COLUMNS, Summary, cells, percent
from eval.tables.disagreements import Disagreements
from eval.tables.results import Means, Over, ResultsTable

WIDEST = 100  # columns of a question that is listed: its text, and a model's replies, may be of any length


class TextConsole(Console):
    """A console on which no text commands the terminal: of runs by a stranger, any name may try to."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as any console does, and leave the commands to the console itself."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def render_text(draw: Callable[[Console], object]) -> str:
    """Return what ``draw`` prints on a console, as plain text wide enough for every figure."""
    text = io.StringIO()
    # In a notebook a console would show what it prints instead of writing it.
    draw(TextConsole(file=text, width=200, highlight=False, force_terminal=False, force_jupyter=False))
    return for_caller(text.getvalue().rstrip("\n"))


def wide_console(columns: int = 200, *, markup: bool = True) -> Console:
    """Return the terminal's console; so many columns wide elsewhere, so that no figure is cut off."""
    return TextConsole(width=None if Console().is_terminal else columns, highlight=False, markup=markup)


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


def figures_table(*labels: str, right: Sequence[str]) -> Table:
    """Return a table whose last columns hold figures: flush right, never wrapped."""
    table = Table(*labels)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_results(table: ResultsTable, console: Console | None = None) -> None:
    """Print a table with all that must be known beside it, and the tests and means that it has."""
    console = console or wide_console()
    print_summaries(table.summaries, console, table.conditions.untrained)
    print_conditions(table, console)
    for note in table.notes:
        console.print(note, soft_wrap=True, markup=False)
    if table.baseline:
        print_comparisons(console, table.against, table.baseline, table.recall_at)
    for pair in table.disagreements:
        print_disagreements(console, pair)
    if table.means:
        print_means(console, table.means, table.over, table.recall_at)


def print_summaries(
    summaries: Sequence[Summary], console: Console, untrained: Untrained = ALL_TRAINED
) -> None:
    """Print a line per run, with a mark behind the name of those that were asked what was not trained."""
    table = Table(caption_justify="left")
    # A long name is folded, so that there is room for the figures, of which none may be cut.
    table.add_column("method", overflow="fold")
    for column in COLUMNS:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for summary in summaries:
        name, *figures = cells(summary)
        table.add_row(Text(untrained.marked(name)), *figures)
    console.print(table)
    if untrained.note:
        console.print(untrained.note, soft_wrap=True, markup=False)
    print_further(console, summaries)


def print_conditions(table: ResultsTable, console: Console) -> None:
    """Print what a reader must know to trust the figures."""
    console.print(
        f"EM, F1 and recall@{table.recall_at} in percent with 95% intervals: {INTERVALS}. "
        f"Scorer: {table.scoring}."
    )
    for line in filter(None, [table.pages_note, *table.conditions.shared]):
        console.print(line, soft_wrap=True, markup=False)
    for summary in table.summaries:
        name = summary.method
        line = f"{name}: {table.runs[name]} ({table.conditions.own[name]})"
        console.print(line, soft_wrap=True, markup=False)
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
    """Return which questions of a run are not scored, or not measured, and that some failed."""
    remarks = []
    if summary.unscored:
        remarks.append(
            f"{summary.unscored:,} of {summary.n:,} questions have no gold answers: EM and F1 are of the "
            f"other {summary.n - summary.unscored:,}."
        )
    for measure, n in summary.measured_on_fewer.items():
        title = FURTHER.get(measure, measure)
        remarks.append(f"{title} is of {n} of {summary.n} questions, which can be measured by it.")
    if summary.recall is not None and summary.searches < 1 and summary.n > summary.failed:
        # Of a method that searches. A model that cannot keep to its form may still answer, by luck.
        often = f"only {summary.searches:.1f} times a question" if summary.searches else "not once"
        remarks.append(f"it searched {often}: the model did not do what the method asks of it.")
    if summary.unasked:
        remarks.append(
            f"the budget allowed no call of the model for {summary.unasked:,} of {summary.n:,} questions: "
            "give more tokens with --budget."
        )
    if summary.estimated:
        remarks.append(
            "~ before its tokens: the server did not count them all, so they are estimated, one for four "
            "bytes of text (--model.tokenizer counts them)."
        )
    if summary.failed:
        remarks += [f"{summary.failed} failed:", *(f"  {line}" for line in summary.failures.commonest())]
    return remarks


def print_comparisons(console: Console, compared: Sequence[Against], baseline: str, recall_at: int) -> None:
    """Print every run's difference from the baseline in every measure."""
    warned = any(one.failed for one in compared)
    figures = (escape(f"minus {baseline}"), "p", "p (Holm)", "unseen below", *["warning"] * warned)
    table = figures_table("method", "measure", right=figures)
    for one in compared:
        comparison = one.comparison
        least = comparison.detectable
        # Above 1 there are so few questions that no difference would be seen.
        unseen = "-" if least is None else "any" if least > 1 else f"{100 * least:.1f}"
        ps = ("-" if p is None else f"{p:.4f}" for p in (one.p_value, one.p_holm))
        row = percent(comparison.difference), *ps, unseen, *[one.warning] * warned
        table.add_row(Text(one.run), measure_title(one.measure, recall_at), *row)
    console.print(table)
    if warned:
        console.print(
            "Failed questions count as wrong, of the run and of the baseline: a difference may be theirs. "
            "Where half of the questions failed, nothing is tested: run the same command again first, which "
            "asks them anew.",
            soft_wrap=True,
        )
    tests = sum(one.p_holm is not None for one in compared)
    console.print(
        "Differences in points with 95% bootstrap intervals, paired by question; sign-flip test, Holm over "
        f"{tests} tests. A true difference under the column 'unseen below' is likely to go unseen (80% "
        "power, 5% level before correction).",
        soft_wrap=True,
    )


def print_disagreements(console: Console, pair: Disagreements) -> None:
    """Print on how many questions a run and the baseline disagree, and the examples with both answers."""
    lost, won = len(pair.lost), len(pair.won)
    examples = f" {len(pair.examples):,} of them:" if pair.examples else ""
    console.print(
        f"{pair.run} and {pair.baseline} disagree on {lost + won:,} of {pair.n:,} questions by EM: only "
        f"{pair.baseline} is right on {lost:,}, only {pair.run} on {won:,}.{examples}",
        soft_wrap=True,
        markup=False,
    )
    width = max(map(len, ("gold", pair.baseline, pair.run)))
    for each in pair.examples:
        question = each.question
        lines = [one_line(f"{question.id}: {question.text}", WIDEST)]
        for name, text in {"gold": "; ".join(question.answers), **each.answers}.items():
            lines.append(f"  {name:<{width}}  {one_line(text, max(40, WIDEST - width - 4))}")
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)


def print_means(console: Console, means: Means, over: Over, recall_at: int) -> None:
    """Print mean and deviation of every group of runs."""
    names = list(dict.fromkeys(name for mean in means.values() for name in mean))
    table = figures_table("method", right=["runs", *(measure_title(name, recall_at) for name in names)])
    for name, mean in means.items():
        figures = [_mean_and_deviation(mean.get(measure), measure) for measure in names]
        table.add_row(Text(name), str(mean["tokens"].n), *figures)
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
