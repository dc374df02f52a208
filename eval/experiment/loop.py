"""The loop that answers questions into a run folder: of a run, of sampling, of judging."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from corag.core.errors import BackendError
from corag.core.gather import first_leaf
from corag.core.runner import Places, RunTurn, answer_all
from corag.core.runs.folder import RunFolder
from corag.core.runs.rows import Row
from corag.core.runs.shards import write_questions
from corag.core.types import Question
from eval.experiment.executor import Executor, QuestionTask
from eval.experiment.progress import RunProgress, Work

T = TypeVar("T")


async def in_turn(runs: Iterable[Callable[[RunTurn], Awaitable[T]]], *, alone: bool = False) -> list[T]:
    """Make runs that share an engine, in this order, and return what each returns.

    The last questions of a run leave places in flight empty: the next run begins in these, unless each is to
    be ``alone``, as for measuring it. An engine that fails ends all; of another error, the runs before come
    to their end before it is raised.
    """
    places, tasks = Places(), list[asyncio.Task[T]]()
    try:
        async with asyncio.TaskGroup() as group:
            for run in runs:
                turn = RunTurn(places)
                tasks.append(group.create_task(_take_turn(run, turn, [*tasks])))
                await turn.all_begun.wait()
                if alone:
                    await asyncio.wait(tasks)
    except BaseExceptionGroup as failures:
        raise first_leaf(failures) from None
    return [task.result() for task in tasks]


async def _take_turn(
    run: Callable[[RunTurn], Awaitable[T]], turn: RunTurn, before: Sequence[asyncio.Task[T]]
) -> T:
    try:
        result = await run(turn)
    except BackendError:
        raise
    except Exception:
        if before:
            await asyncio.wait(before)
        raise
    turn.all_begun.set()
    return result


async def answer_into(
    run: RunFolder,
    questions: Sequence[Question],
    task: QuestionTask,
    executor: Executor,
    *,
    title: str,
    batch_size: int,
    shard: str = "",
    turn: RunTurn | None = None,
) -> None:
    """Run a task for the questions that a run has no answer to, write each row, and show the progress.

    Args:
        run: an open run folder.
        questions: all of the run's questions, answered or not.
        task: makes a question's row.
        executor: runs the task.
        title: what the line of progress is called.
        batch_size: questions in flight with each engine.
        shard: such as "2/8" if the questions are a shard: their ids are then recorded in the folder.
        turn: of this run among those that share the executor's engine.

    Raises:
        BackendError: if the engine or the index is gone; also what else :func:`answer_all` raises. Every row
            that was finished is in the folder.
    """
    if shard:
        write_questions(run.path, [question.id for question in questions])
    waiting = [question for question in questions if question.id not in run.answered_ids]
    answered_count = len(questions) - len(waiting)
    work = Work()
    answer = executor.bind(task, work)
    in_flight = executor.in_flight(batch_size)
    progress = RunProgress(
        title,
        total=len(questions),
        answered_count=answered_count,
        in_flight=in_flight,
        work=work,
        status=executor.status,
    )

    def record(row: Row) -> None:
        # Written before it is counted: what a person is shown as finished survives a kill.
        run.append(row)
        progress.advance(row)

    with progress.shown():
        await answer_all(waiting, answer, record, in_flight=in_flight, turn=turn)
