"""Answering many questions at once: everything in flight, failures as rows, nothing lost."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable

from corag.core.errors import BackendError, ConfigError, CoragError
from corag.core.gather import gather
from corag.core.own_objects import error_location, user_code_location
from corag.core.process import unix_time
from corag.core.runs.rows import Row
from corag.core.tools import Tools
from corag.core.types import Answer, Question

BoundMethod = Callable[[Question, Tools], Awaitable[Answer]]
"""A method with its options set."""
_ROUNDING = 1e-9


async def answer_question(question: Question, method: BoundMethod, tools: Tools) -> Row:
    """Run a method on one question. A failure becomes a row with its error.

    Raises :class:`BackendError` and :class:`ConfigError`: those would fail every other question too.
    """
    start = time.perf_counter()
    answer: Answer | None = None
    error = ""
    try:
        answer = await method(question, tools)
    except (BackendError, ConfigError):  # not this question's fault
        raise
    except SystemExit as failure:
        if threading.current_thread() is threading.main_thread():
            raise  # a command that is told to end (SIGTERM) ends
        # Let through, it would end the event loop that all callers share.
        error = f"SystemExit: the method ended Python (sys.exit({failure.code!r})): raise an error instead."
    except CoragError as failure:
        error = f"{type(failure).__name__}: {failure}"
    except Exception as failure:  # noqa: BLE001 - a defect met by one question must not cost the others
        error = f"{type(failure).__name__}: {failure_message(failure)}\n{traceback.format_exc()}"
    seconds = time.perf_counter() - start
    return Row(
        question,
        answer,
        tuple(tools.steps),
        dict(tools.ledger),
        seconds,
        error,
        unix_time(tools.begun),
        tools.passages_read.leading_to(answer, question.text) if answer is not None else (),
    )


def failure_message(failure: Exception) -> str:
    """Return what an error says, and on its first line where code of the user's was."""
    message, *more = str(failure).strip().splitlines() or ["no message"]
    if isinstance(failure, TypeError | AttributeError) and "'coroutine' object" in message:
        message += " (an await is missing: write `await tools.search(...)`)"
    location = user_code_location(failure) or ("" if str(failure).strip() else error_location(failure))
    return "\n".join([f"{message} ({location})" if location else message, *more])


class RunTurn:
    """A run's turn among those that share an engine: it takes places as the run before frees them."""

    def __init__(self, before: RunTurn | None = None) -> None:
        self._before = before
        self._changed: asyncio.Condition = before._changed if before else asyncio.Condition()
        self._share, self._has_ended = 0.0, False

    @property
    def _free(self) -> float:
        """The share of places that this run has left; once it has ended, those that the run before has."""
        turn = self
        while turn._has_ended and turn._before is not None:
            turn = turn._before
        return 1.0 if turn._has_ended else turn._share

    async def wait(self, share: float, needless: Callable[[], bool] = lambda: False) -> None:
        """Wait until this share of the places is free, or none is needed any more."""
        if (before := self._before) is not None:
            async with self._changed:
                await self._changed.wait_for(lambda: before._free > share - _ROUNDING or needless())

    async def wait_for_first_place(self) -> None:
        """Wait until the run before has a place to spare."""
        await self.wait(2 * _ROUNDING)

    async def wait_for_end(self) -> None:
        """Wait until the runs before have ended."""
        before = self._before
        while before is not None:
            async with self._changed:
                while not before._has_ended:
                    await self._changed.wait()
            before = before._before

    async def free(self, share: float, *, ends: bool = False) -> None:
        """Free a share of the places, for which no question is left; or all, as the run ``ends``."""
        async with self._changed:
            self._share += share
            self._has_ended = self._has_ended or ends
            self._changed.notify_all()


async def answer_all(
    questions: Iterable[Question],
    answer: Callable[[Question], Awaitable[Row]],
    record: Callable[[Row], None],
    *,
    in_flight: int,
    turn: RunTurn | None = None,
) -> None:
    """Answer a stream of questions, ``in_flight`` at a time, and record each row as it is finished.

    Args:
        questions: taken one by one, in this order.
        answer: returns a question's row, with the error if it failed.
        record: takes each finished row, in the order in which they finish.
        in_flight: at least 1. Results do not depend on it as long as replies of model and index do not.
        turn: of this run among others; by default it has its places for itself.

    Raises:
        BackendError: the first one; as an error of ``record``, it cancels what is in flight.
        ConfigError: if ``in_flight`` is below 1.
    """
    if in_flight < 1:
        raise ConfigError(
            f"batch_size, the number of questions in flight, must be at least 1, but it is {in_flight}."
        )
    stream, turn = iter(questions), turn or RunTurn()
    is_exhausted = False

    # Workers share one iterator: each takes the next question when it is free, so none waits for the slowest.
    async def worker(number: int) -> None:
        nonlocal is_exhausted
        await turn.wait((number + 1) / in_flight, lambda: is_exhausted)
        if is_exhausted:  # it may never have had its place
            return
        for question in stream:
            record(await answer(question))
        is_exhausted = True
        await turn.free(1 / in_flight)

    await gather(map(worker, range(in_flight)))
