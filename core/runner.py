"""Answering many questions at once: everything in flight, failures as rows, nothing lost."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable

from core.clock import unix_time
from core.errors import BackendError, ConfigError, CoragError
from core.gather import gather
from core.runs.rows import Row
from core.tools import Tools
from core.types import Answer, Question

Method = Callable[[Question, Tools], Awaitable[Answer]]


async def answer_question(question: Question, method: Method, tools: Tools) -> Row:
    """Run a method on one question. A failure becomes a row with its error.

    Raises :class:`BackendError` and :class:`ConfigError`: those would fail every other question too.
    """
    started = time.perf_counter()
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
        error = f"{type(failure).__name__}: {failure}\n{traceback.format_exc()}"
    seconds = time.perf_counter() - started
    return Row(
        question, answer, tuple(tools.steps), dict(tools.ledger), seconds, error, unix_time(tools.begun)
    )


async def answer_all(
    questions: Iterable[Question],
    answer_one: Callable[[Question], Awaitable[Row]],
    record: Callable[[Row], None],
    *,
    in_flight: int,
) -> None:
    """Answer a stream of questions, ``in_flight`` at a time, and record each row as it is finished.

    Results do not depend on ``in_flight`` as long as the generator's and retriever's replies do not, and the
    questions share nothing (:attr:`core.tools.Tools.shared`). The first :class:`BackendError`, or an error
    from ``record``, cancels what is in flight and is raised.
    """
    if in_flight < 1:
        raise ConfigError(
            f"batch_size, the number of questions in flight, must be at least 1, but it is {in_flight}."
        )
    stream = iter(questions)

    # Workers share one iterator: each takes the next question when it is done, so none waits for the slowest.
    async def worker() -> None:
        for question in stream:
            record(await answer_one(question))

    await gather(worker() for _ in range(in_flight))
