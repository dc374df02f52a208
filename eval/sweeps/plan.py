"""What a run or a sweep will take, judged by a pilot of some of its questions, which it then goes on from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from corag.core.options.classes import Options
from corag.core.options.names import Mark
from corag.core.runs.folder import read_lines
from corag.core.types import Question
from eval.experiment.estimate import MIN_QUESTIONS, RunEstimate, estimate
from eval.experiment.run import RunConfig, answer_dataset
from eval.sweeps.sweep import Openers, SweepConfig, answer_cells, plan_cells


@dataclass(frozen=True)
class PilotOptions(Options):
    """The option of commands that can say first what they will take."""

    pilot: Annotated[int, Ge(0), Mark.ENVIRONMENT] = 0
    """answer only so many questions (at least 10), spread evenly over all, and print what the others will
    take: time and tokens. The same command without it goes on from there."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a plan.

    Attributes:
        name: the method's or the cell's.
        folder: the run folder, with what is answered so far.
        questions: all of its questions.
        rest: what those without an answer will take; None if too few could be answered to judge by.
    """

    name: str
    folder: Path
    questions: int
    rest: RunEstimate | None


def plan_run(config: RunConfig, pilot: int) -> list[PlannedRun]:
    """Answer the pilot's questions in the run's own folders, and judge the rest by them.

    One method after the other: of few questions several would be under way at once, each slower for it.
    """
    questions = config.load()
    folders = asyncio.run(answer_dataset(config, draw_evenly(questions, pilot), alone=True))
    return [_plan_run(name, folder, questions) for name, folder in folders.items()]


def plan_sweep(config: SweepConfig, pilot: int, openers: Openers) -> list[PlannedRun]:
    """Do the same for the cells of a sweep, in theirs."""
    test_cells, dev_cells = plan_cells(config)
    cells = [*test_cells, *dev_cells]
    pilots = [replace(cell, questions=draw_evenly(cell.questions, pilot)) for cell in cells]
    asyncio.run(answer_cells(pilots, openers, alone=True))
    names = [cell.name for cell in test_cells] + [f"dev: {cell.name}" for cell in dev_cells]
    return [_plan_run(name, cell.folder, cell.questions) for name, cell in zip(names, cells, strict=True)]


def draw_evenly(questions: Sequence[Question], count: int) -> Sequence[Question]:
    """Return ``count`` of the questions at even distances: files are often sorted, as MuSiQue's by hops.

    Of fewer than ten nothing can be judged.

    >>> draw_evenly(range(40), 10)
    [2, 6, 10, 14, 18, 22, 26, 30, 34, 38]
    """
    count = max(MIN_QUESTIONS, count)
    if count >= len(questions):
        return questions
    step = len(questions) / count
    return [questions[int((number + 0.5) * step)] for number in range(count)]


def _plan_run(name: str, folder: Path, questions: Sequence[Question]) -> PlannedRun:
    # Perhaps of other questions, too.
    answered_ids = {id_ for id_, line in read_lines(folder).items() if not line.failed}
    waiting_for = sum(question.id not in answered_ids for question in questions)
    return PlannedRun(name, folder, len(questions), estimate(folder, waiting_for))
