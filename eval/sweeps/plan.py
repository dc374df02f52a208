"""What a run or a sweep will take, judged by a pilot of some of its questions, which it then goes on from.

A dry plan runs the methods' own code without a model, for an estimate from above.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from corag.core.machine import visible_gpus
from corag.core.runs.folder import read_lines
from corag.core.types import Question
from eval.experiment.backends import open_index_or_client, require_index
from eval.experiment.dry import check_fixed, open_dry
from eval.experiment.estimate import MIN_QUESTIONS, RunEstimate, estimate
from eval.experiment.executor import LocalExecutor
from eval.experiment.run import RunConfig, answer_dataset, answer_with, repeats_of
from eval.experiment.workers.config import WorkersConfig
from eval.sweeps.sweep import Openers, SweepConfig, answer_cells, plan_cells
from eval.tables.ledger import read_ledger

_PILOT = 20


@dataclass(frozen=True)
class PlanConfig(SweepConfig):
    """Options of 'corag plan': those of 'corag sweep' where there are cells, else of 'corag run'."""

    pilot: Annotated[int, Ge(0)] = 0
    """questions of the pilot run, spread evenly over the file; 0 for 20, or on GPUs for twice the number in
    flight."""

    dry: bool = False
    """run without a model: counts prompts with the passages that the index returns and takes every reply at
    its longest. Gives tokens, searches and disk, and no time. A run takes less, unless its model repeats
    sub-queries, which CoRAG asks again."""

    @property
    def pilot_size(self) -> int:
        """How many questions the pilot answers."""
        return max(MIN_QUESTIONS, self.pilot or (2 * self.most_in_flight if visible_gpus() else _PILOT))

    @property
    def is_sweep(self) -> bool:
        """Whether it has cells."""
        return bool(self.cells or self.grid or self.over)

    def options_of(self, kind: type[RunConfig]) -> dict[str, object]:
        """Return the options that another command has too."""
        return {each.name: getattr(self, each.name) for each in fields(kind)}


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a plan.

    Attributes:
        name: the method's or the cell's.
        folder: the run folder, with what is answered so far.
        questions: all of its questions.
        rest: what those without an answer will take; None if too few could be answered to judge by.
        searching: share of its questions' waiting that was for searches.
    """

    name: str
    folder: Path
    questions: int
    rest: RunEstimate | None
    searching: float


def plan_runs(config: PlanConfig, openers: Openers) -> list[PlannedRun]:
    """Answer the pilot's questions and judge the rest by them.

    They are answered in the very folders of the run or sweep, which keeps them, one run after the other: of
    few questions several would be under way at once, each slower for it. Raises as 'corag run' does.
    """
    if config.dry:
        return _plan_dry(config)
    if config.is_sweep:
        return _plan_sweep(SweepConfig(**config.options_of(SweepConfig)), config.pilot_size, openers)  # type: ignore[arg-type]
    run = RunConfig(**config.options_of(RunConfig))  # type: ignore[arg-type]
    questions = run.load()
    folders = asyncio.run(answer_dataset(run, draw_evenly(questions, config.pilot_size), alone=True))
    return [_plan_run(name, folder, questions) for name, folder in folders.items()]


def _plan_sweep(config: SweepConfig, pilot: int, openers: Openers) -> list[PlannedRun]:
    test_cells, dev_cells = plan_cells(config)
    cells = [*test_cells, *dev_cells]
    pilots = [replace(cell, questions=draw_evenly(cell.questions, pilot)) for cell in cells]
    asyncio.run(answer_cells(pilots, openers, alone=True))
    names = [cell.name for cell in test_cells] + [f"dev: {cell.name}" for cell in dev_cells]
    return [_plan_run(name, cell.folder, cell.questions) for name, cell in zip(names, cells, strict=True)]


def _plan_dry(config: PlanConfig) -> list[PlannedRun]:
    """Estimate from above what all questions ask for, by some of them, in folders that are thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        dry_config = replace(config, out=folder, workers=WorkersConfig(kind="none"))
        if config.is_sweep:
            sweep = SweepConfig(**dry_config.options_of(SweepConfig))  # type: ignore[arg-type]
            check_fixed([cell.method for cells in plan_cells(sweep) for cell in cells])
            runs = _plan_sweep(sweep, config.pilot_size, Openers(generator=open_dry))
        else:
            check_fixed(config.method)
            run = RunConfig(**dry_config.options_of(RunConfig))  # type: ignore[arg-type]
            questions = run.load()
            folders = asyncio.run(_answer_dry(run, draw_evenly(questions, config.pilot_size)))
            runs = [_plan_run(name, path, questions) for name, path in folders.items()]
        return [_all_of(each, config.folder) for each in runs]


async def _answer_dry(config: RunConfig, questions: Sequence[Question]) -> dict[str, Path]:
    for name in config.method:
        config.of(name).check_files()
    if config.searches:
        require_index(config.retriever)
    async with AsyncExitStack() as stack:
        index = (
            await stack.enter_async_context(open_index_or_client(config.retriever))
            if config.searches
            else None
        )
        executor = LocalExecutor(await stack.enter_async_context(open_dry(config.model)), index)
        return {
            title: await answer_with(each, name, questions, executor, cell=title)
            for name in config.method
            for title, each in repeats_of(config, name).items()
        }


def _all_of(run: PlannedRun, folder: Path) -> PlannedRun:
    """Return a dry plan's run with all of its questions before it, and no time."""
    answered_ids = {id_ for id_, line in read_lines(run.folder).items() if not line.failed}
    rest = estimate(run.folder, run.questions, len(answered_ids)) if answered_ids else None
    return replace(run, folder=folder, rest=rest and replace(rest, seconds=None), searching=0.0)


def draw_evenly(questions: Sequence[Question], count: int) -> Sequence[Question]:
    """Return ``count`` of the questions at even distances: files are often sorted, as MuSiQue's by hops.

    >>> draw_evenly(range(10), 4)
    [1, 3, 6, 8]
    """
    if count >= len(questions):
        return questions
    step = len(questions) / count
    return [questions[int((number + 0.5) * step)] for number in range(count)]


def _plan_run(name: str, folder: Path, questions: Sequence[Question]) -> PlannedRun:
    # Perhaps of other questions, too.
    answered_ids = {id_ for id_, line in read_lines(folder).items() if not line.failed}
    waiting_for = sum(question.id not in answered_ids for question in questions)
    waiting = {stage: each.total for stage, each in read_ledger(folder).stages.items() if each}
    return PlannedRun(
        name,
        folder,
        len(questions),
        estimate(folder, waiting_for, len(answered_ids)) if answered_ids else None,
        waiting.get("search", 0.0) / max(sum(waiting.values()), 1e-9),
    )
