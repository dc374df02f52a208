"""Answering many questions at once: everything in flight, failures as rows, nothing lost."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from fractions import Fraction

from corag.core.citations import check_citations
from corag.core.errors import BackendError, ConfigError, CoragError
from corag.core.gather import first_leaf
from corag.core.own_objects import error_location, user_code_location
from corag.core.runs.rows import Row
from corag.core.system.process import unix_time
from corag.core.tools import Tools
from corag.core.types import Answer, Question

BoundMethod = Callable[[Question, Tools], Awaitable[Answer]]
"""A method with its options set."""


async def answer_question(
    question: Question, method: BoundMethod, tools: Tools, *, cites: bool = False
) -> Row:
    """Run a method on one question. A failure becomes a row with its error.

    ``cites``: the answer cites passages, which is checked.

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
    claims = (
        check_citations(answer.text, tools.passages_read.texts_of(answer.shown_ids))
        if answer is not None and cites
        else ()
    )
    return Row(
        question,
        answer,
        tuple(tools.steps),
        dict(tools.ledger),
        seconds,
        error,
        unix_time(tools.begun),
        tools.passages_read.leading_to(answer, tools.question.text) if answer is not None else (),
        tuple(claims),
    )


def failure_message(failure: Exception) -> str:
    """Return what an error says, and on its first line where code of the user's was."""
    message, *more = str(failure).strip().splitlines() or ["no message"]
    location = user_code_location(failure) or ("" if str(failure).strip() else error_location(failure))
    return "\n".join([f"{message} ({location})" if location else message, *more])


class Places:
    """The places in flight of an engine: a question of a run with 8 in flight takes an eighth of them."""

    def __init__(self) -> None:
        self._taken, self._freed = Fraction(0), asyncio.Event()

    async def take(self, share: Fraction) -> None:
        """Wait until this share is free, and take it. One run at a time may wait."""
        while self._taken + share > 1:
            self._freed.clear()
            await self._freed.wait()
        self._taken += share

    def free(self, share: Fraction) -> None:
        """Give a share back."""
        self._taken -= share
        self._freed.set()


class RunTurn:
    """A run's turn among those that share an engine: its questions take what places those before leave.

    ``all_begun``: set once each of its questions has had its place: the next run may begin.
    """

    def __init__(self, places: Places) -> None:
        self.places, self.all_begun = places, asyncio.Event()


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
    """
    turn, share = turn or RunTurn(Places()), Fraction(1, in_flight)

    async def answer_one(question: Question) -> None:
        try:
            record(await answer(question))
        finally:
            turn.places.free(share)

    try:
        async with asyncio.TaskGroup() as group:
            for question in questions:
                await turn.places.take(share)  # each begins when there is room, and waits for no slower one
                group.create_task(answer_one(question))
            turn.all_begun.set()
    except BaseExceptionGroup as failures:
        raise first_leaf(failures) from None
