"""How far a run is: a line on standard error every half minute, and one at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console

from corag.core.pace import clock, reporting
from corag.core.runs.rows import Row

QUIET_SECONDS = 30.0
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
        work: what the engine has done in this start, kept up to date by others; None if it is not known here.
        status: returns something to add, such as how busy workers are; "" for nothing.
    """

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
        self._in_flight, self._work, self._status = in_flight, work, status
        self._new = self._tokens = self._failure_count = 0
        self._start_time = self._first = time.monotonic()

    def advance(self, row: Row) -> None:
        """Count one finished question."""
        self._first = self._first if self._new else time.monotonic()
        self._new += 1
        # Tokens that the engine computed: replies from the request cache are no measure of its speed.
        self._tokens += row.total_usage.computed
        self._failure_count += bool(row.error)

    def line(self) -> str:
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
        return f"{self._title}: {', '.join(parts)}"

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Print the line now and then for the length of a block, and at its end."""
        with reporting(lambda seconds: self.line(), print_line, QUIET_SECONDS):
            yield
        print_line(self.line())


def print_line(line: str) -> None:
    """Print a line on standard error."""
    Console(stderr=True, highlight=False).print(line, soft_wrap=True, markup=False)
