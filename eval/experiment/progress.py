"""How far a run is: a bar in a terminal, a line now and then elsewhere. On standard error, always."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar

from rich import progress
from rich.console import Console
from rich.markup import escape
from rich.table import Column

from corag.core.pace import clock
from corag.core.runs.rows import Row

LINE_SECONDS = 15.0  # least, between lines
QUIET_SECONDS = 30.0  # most, between lines, finished or not
_BAR_SECONDS = 1.0
FEWEST_FOR_TIME_LEFT = 10


@dataclass(slots=True)
class Work:
    """What an engine did. ``calls``: requests that it replied to; ``tokens``: those that it computed."""

    calls: int = 0
    tokens: int = 0


class RunProgress:
    """Counts finished questions and the tokens that the engine worked through for them.

    A question may take many minutes, so until the first one is finished the calls of all are counted.

    Args:
        title: what is answered.
        total: its questions.
        answered_count: those that an earlier start answered; they do not count for the rates.
        in_flight: questions that are answered at the same time.
        work: what the engine has done in this start, kept up to date by others; None if nobody knows.
        status: returns something to add, such as how busy workers are; "" for nothing.
    """

    _on_show: ClassVar[threading.Lock] = threading.Lock()  # held by the one whose bar is on the terminal

    def __init__(
        self,
        title: str,
        *,
        total: int,
        answered_count: int = 0,
        in_flight: int = 1,
        work: Work | None = None,
        status: Callable[[], str] = str,
    ) -> None:
        self._title, self._total, self._answered_count = title, total, answered_count
        self._status = status
        self._in_flight, self._work = in_flight, work
        self._new = self._tokens = self._failure_count = 0
        self._start_time = self._first = time.monotonic()
        self._end_event = threading.Event()
        self._refresher = threading.Thread(target=self._refresh, name="progress", daemon=True)
        self._line_time, self._line_count = 0.0, -1  # of the last line: when, and how many were finished
        self._console = Console(stderr=True, highlight=False)
        self._is_terminal = self._console.file.isatty() and not self._console.is_dumb_terminal
        self._bar: progress.Progress | None = None

    def advance(self, row: Row) -> None:
        """Count one finished question."""
        self._first = self._first if self._new else time.monotonic()
        self._new += 1
        # Tokens that the engine computed: replies from the request cache are no measure of its speed.
        self._tokens += row.total_usage.computed
        self._failure_count += bool(row.error)
        if self._bar:
            self._bar.update(self._task, advance=1, text=escape(self._text()))
        elif not self._is_terminal and time.monotonic() - self._line_time >= LINE_SECONDS:
            self._print_line()

    def _text(self) -> str:
        """Render counts, rates over the whole start, and the time that is left, once it can be estimated."""
        tokens = max(self._tokens, self._work.tokens if self._work else 0)
        seconds = max(time.monotonic() - self._start_time, 1e-6)
        finished_count = self._answered_count + self._new
        parts = [f"{finished_count}/{self._total} questions"]
        if self._new:
            parts.append(f"{self._new / seconds:.2f} questions/s")
        elif self._work and self._work.calls:
            parts.append(f"{self._work.calls:,} calls, {tokens:,} computed tokens")
        if tokens or self._new:
            parts.append(f"{tokens / seconds:,.0f} computed tokens/s")
        # The first questions come after the engine has warmed up, and are the quickest of those in flight: as
        # many again must have come after the first one.
        if finished_count < self._total and self._new > max(FEWEST_FOR_TIME_LEFT, self._in_flight):
            pace = (time.monotonic() - self._first) / (self._new - 1)
            parts.append(f"{clock((self._total - finished_count) * pace)} left")
        parts += [f"{self._failure_count} failed"] if self._failure_count else []
        parts += [status] if (status := self._status()) else []
        return ", ".join(parts)

    def _refresh(self) -> None:
        """Keep the bar's words up to date, or print a line when there was none for long."""
        while not self._end_event.wait(_BAR_SECONDS if self._is_terminal else QUIET_SECONDS):
            if self._bar:
                self._bar.update(self._task, text=escape(self._text()))
            elif self._is_terminal:
                self._show_bar()  # once the bar of the run before is gone
            elif time.monotonic() - self._line_time >= LINE_SECONDS:
                self._print_line()

    def _print_line(self) -> None:
        self._line_time, self._line_count = time.monotonic(), self._new
        print(f"{self._title}: {self._text()}", file=self._console.file, flush=True)

    def __enter__(self) -> RunProgress:
        if self._is_terminal:
            self._show_bar()
        self._refresher.start()
        return self

    def _show_bar(self) -> None:
        if RunProgress._on_show.acquire(blocking=False):
            bar, text = _bar(self._console), escape(self._text())
            bar.start()
            finished_count = self._answered_count + self._new
            self._task = bar.add_task(
                escape(self._title), total=self._total, completed=finished_count, text=text
            )
            self._bar = bar

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_event.set()
        self._refresher.join()
        if self._bar:
            self._bar.stop()
            RunProgress._on_show.release()
        elif self._line_count < self._new:  # else the last line has these counts
            self._print_line()


def _bar(console: Console) -> progress.Progress:
    # Where a terminal is narrow the words go on in further lines: the time left and failures come last. What
    # is printed meanwhile stands above the bar, but for what goes to a file.
    text = progress.TextColumn("{task.fields[text]}", table_column=Column())
    columns = "{task.description}", progress.BarColumn(24), text
    return progress.Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty())
