"""How far a run is: a bar with rates and time left in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from core.runner import answer_all
from core.runs.folder import RunFolder
from core.runs.rows import Row
from core.types import Question


class Progress:
    """Counts finished questions and the tokens that the engine worked through for them.

    Writes to standard error, so that standard output stays clean.
    """

    def __init__(
        self,
        name: str,
        *,
        total: int,
        finished: int = 0,
        parts: tuple[str, Callable[[Row], int]] | None = None,
    ) -> None:
        """``finished`` questions were answered by an earlier start and do not count for the rate.

        ``parts``: what else to give a rate of, and how many of them a row has.
        """
        self._name = name
        self._total = total
        self._finished = finished
        self._new = 0
        self._tokens = 0
        self._parts = parts
        self._counted = 0
        self._failed = 0
        self._started = time.monotonic()
        self._shown = 0.0
        self._bar = sys.stderr.isatty()

    def advance(self, row: Row) -> None:
        """Count one finished question."""
        self._new += 1
        self._tokens += row.total_usage.computed
        self._failed += bool(row.error)
        self._counted += self._parts[1](row) if self._parts else 0
        now = time.monotonic()
        if now - self._shown >= (0.2 if self._bar else 15.0):
            self._shown = now
            self._show()

    def _show(self, end: bool = False) -> None:
        seconds = max(time.monotonic() - self._started, 1e-6)
        done = self._finished + self._new
        left = (self._total - done) * seconds / self._new if self._new else 0.0
        parts = f"{self._counted / seconds:.2f} {self._parts[0]}/s, " if self._parts else ""
        text = (
            f"{self._name}: {done}/{self._total} questions, {self._new / seconds:.2f} questions/s, {parts}"
            f"{self._tokens / seconds:,.0f} computed tokens/s, {_clock(left)} left"
        )
        if self._failed:
            text += f", {self._failed} failed"
        if self._bar:
            width = 24
            filled = width * done // max(self._total, 1)
            text = f"\r\x1b[K[{'#' * filled}{'.' * (width - filled)}] {text}" + ("\n" if end else "")
        else:
            text += "\n"
        sys.stderr.write(text)
        sys.stderr.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show(end=True)


def _clock(seconds: float) -> str:
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
) -> None:
    """Answer the questions that a run does not hold yet, and show how far it is."""
    waiting = [question for question in questions if question.id not in run.answered]
    with Progress(
        title, total=len(questions), finished=len(questions) - len(waiting), parts=parts
    ) as progress:

        def record(row: Row) -> None:
            run.append(row)
            progress.advance(row)

        await answer_all(waiting, answer_one, record, in_flight=in_flight)
