"""How far a run is: a bar in a terminal, a line now and then elsewhere. On standard error, always."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from rich import progress
from rich.console import Console
from rich.markup import escape
from rich.table import Column

from core.runner import answer_all
from core.runs.folder import RunFolder
from core.runs.rows import Row
from core.types import Question

LINE_SECONDS = 15.0
# The first questions to be finished are the quickest of those in flight: they tell nothing about the rest.
FEWEST_FOR_TIME_LEFT = 3


class RunProgress:
    """Counts finished questions and the tokens that the engine worked through for them.

    Args:
        name: what is answered.
        total: its questions.
        finished: those that an earlier start answered; they do not count for the rate.
        parts: what else to give a rate of, and how many of them a row has.
        more: says something more, such as how busy workers are; "" for nothing.
    """

    def __init__(
        self,
        name: str,
        *,
        total: int,
        finished: int = 0,
        parts: tuple[str, Callable[[Row], int]] | None = None,
        more: Callable[[], str] = str,
    ) -> None:
        self._name, self._total, self._finished, self._parts = name, total, finished, parts
        self._more = more
        self._new = self._tokens = self._counted = self._failed = 0
        self._started = time.monotonic()
        self._written, self._told = 0.0, -1
        self._console = Console(stderr=True, highlight=False)
        terminal = self._console.file.isatty() and not self._console.is_dumb_terminal
        self._bar = _bar(self._console) if terminal else None

    def advance(self, row: Row) -> None:
        """Count one finished question."""
        self._new += 1
        self._tokens += row.total_usage.computed
        self._failed += bool(row.error)
        self._counted += self._parts[1](row) if self._parts else 0
        if self._bar:
            self._bar.update(self._task, advance=1, said=escape(self._said()))
        elif time.monotonic() - self._written >= LINE_SECONDS:
            self._write()

    def _said(self) -> str:
        """Say counts, rates over the whole start, and the time that is left, once it can be told."""
        seconds = max(time.monotonic() - self._started, 1e-6)
        done = self._finished + self._new
        said = [f"{done}/{self._total} questions"]
        if self._new:
            said.append(f"{self._new / seconds:.2f} questions/s")
            said += [f"{self._counted / seconds:.2f} {self._parts[0]}/s"] if self._parts else []
            said.append(f"{self._tokens / seconds:,.0f} computed tokens/s")
        if done < self._total and self._new >= FEWEST_FOR_TIME_LEFT:
            said.append(f"{clock((self._total - done) * seconds / self._new)} left")
        said += [f"{self._failed} failed"] if self._failed else []
        said += [more] if (more := self._more()) else []
        return ", ".join(said)

    def _write(self) -> None:
        self._written, self._told = time.monotonic(), self._new
        print(f"{self._name}: {self._said()}", file=self._console.file, flush=True)

    def __enter__(self) -> RunProgress:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(
                escape(self._name), total=self._total, completed=self._finished, said=escape(self._said())
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        elif self._told < self._new:  # else the last line has said it
            self._write()


def _bar(console: Console) -> progress.Progress:
    # Where a terminal is narrow the words go on in further lines: the time left and failures come last. What
    # is printed meanwhile stands above the bar, but for what goes to a file.
    said = progress.TextColumn("{task.fields[said]}", table_column=Column())
    columns = "{task.description}", progress.BarColumn(24), said
    return progress.Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty())


def clock(seconds: float) -> str:
    """Write a time as hours, minutes and seconds.

    >>> clock(3725.4), clock(59)
    ('1:02:05', '0:59')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


async def answer_waiting(
    run: RunFolder,
    questions: Sequence[Question],
    answer_one: Callable[[Question], Awaitable[Row]],
    title: str,
    *,
    in_flight: int,
    parts: tuple[str, Callable[[Row], int]] | None = None,
    more: Callable[[], str] = str,
) -> None:
    """Answer the questions that a run does not hold yet, and show how far it is."""
    waiting = [question for question in questions if question.id not in run.answered]
    finished = len(questions) - len(waiting)
    with RunProgress(title, total=len(questions), finished=finished, parts=parts, more=more) as shown:

        def record(row: Row) -> None:
            run.append(row)
            shown.advance(row)

        await answer_all(waiting, answer_one, record, in_flight=in_flight)
