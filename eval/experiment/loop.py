"""The loop that answers questions into a run folder: of a run, of sampling, of judging."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from corag.core.runner import answer_all
from corag.core.runs.folder import RunFolder
from corag.core.runs.rows import Row
from corag.core.runs.shards import write_questions
from corag.core.types import Question
from eval.experiment.estimate import FEWEST, RunCost, estimate
from eval.experiment.executor import Executor, QuestionTask
from eval.experiment.progress import Rate, RunProgress, Work, print_progress


async def answer_into(
    run: RunFolder,
    questions: Sequence[Question],
    task: QuestionTask,
    executor: Executor,
    *,
    title: str,
    batch_size: int,
    shard: str = "",
    rate: Rate | None = None,
    send: Callable[[Row], None] | None = None,
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
        rate: what else of the rows to count in the line of progress.
        send: sends the spans of each row that is written; see :mod:`eval.experiment.collector`.

    Raises:
        BackendError: if the engine or the index is gone; also what else :func:`answer_all` raises. Every row
            that was finished is in the folder.
    """
    if shard:
        write_questions(run.path, [question.id for question in questions])
    waiting = [question for question in questions if question.id not in run.answered]
    answered = len(questions) - len(waiting)
    work = Work()
    answer = executor.bind(task, work)
    in_flight = executor.in_flight(batch_size)
    judged_by = len(run.answered)  # a folder may hold further questions
    planned = estimate(run.path, len(waiting), judged_by) if min(len(waiting), judged_by) >= FEWEST else None
    cost = RunCost()
    if planned:
        print_progress(f"{title}: about {planned}, judged by {planned.judged_by:,} that are answered")
    with RunProgress(
        title,
        total=len(questions),
        answered=answered,
        in_flight=in_flight,
        work=work,
        rate=rate,
        status=executor.status,
    ) as progress:

        def record(row: Row) -> None:
            # Written before it is counted: what a person is shown as finished survives a kill.
            run.append(row)
            progress.advance(row)
            cost.add(row)
            if send is not None:
                send(row)

        await answer_all(waiting, answer, record, in_flight=in_flight)
    if planned:
        print_progress(f"{title}: {cost.beside(planned)}")
