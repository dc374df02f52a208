"""Answering the cells of a sweep, one engine after another, each cell into a run folder of its own.

Cells of one model share its engine, prefix cache and request cache. A finished cell opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from corag.core.errors import ConfigError
from corag.core.options.names import LocalPath, NameOrPath
from corag.core.protocols import Generator, Retriever
from corag.core.runner import RunTurn
from corag.core.runs.folder import TRACES, read_lines
from corag.core.runs.manifest import MANIFEST
from corag.core.runs.provenance import PROVENANCE, Provenance, settings_of
from corag.core.seeds import stable_hash
from corag.core.system.files import read_anew
from corag.core.types import Question
from corag.generation.config import ModelConfig
from eval.datasets.same import in_common
from eval.experiment.backends import (
    check_model,
    identify_indexes,
    identify_weights,
    open_index_or_client,
    require_index,
)
from eval.experiment.executor import Executor, LocalExecutor
from eval.experiment.gold import match_gold
from eval.experiment.loop import in_turn
from eval.experiment.open_executor import start_workers
from eval.experiment.opening import open_model_quietly
from eval.experiment.questions import FurtherQuestions, QuestionFile, has_gold_answers, keep_usable
from eval.experiment.run import RunConfig, answer_with, is_told_apart, method_settings
from eval.experiment.workers.choice import choose_workers
from eval.experiment.workers.cluster import connect
from eval.experiment.workers.config import WorkersConfig
from eval.experiment.workers.search_servers import SearchServers
from eval.sweeps.cells import Cell, common_provenance, read_cells
from eval.sweeps.findings import check_metric
from retrieval.config import RetrieverConfig

# Replies of a kind that an engine of a sweep remembers: 0.7 GB if all are met. Best of 8 with 6 hops samples
# 48 per question, and later cells ask for the very same: what is forgotten is computed again.
REPLIES_KEPT = 500_000
SWEEP_FILE = "sweep.json"


@dataclass(frozen=True)
class SweepConfig(RunConfig):
    """Options of 'corag sweep': those of 'corag run' that cells share, the cells, and how to report them."""

    out: LocalPath = "auto"
    """folder of the sweep; "auto" is runs/NAME-OF-QUESTIONS/sweep and digits that change with what is chosen
    for all cells, not with defaults."""

    cells: NameOrPath = ""
    """settings to compare: names with the options that each changes ("method" is one of them); or a YAML file
    of them."""

    grid: NameOrPath = ""
    """blocks of options, each with a value or a list of values, combined into cells; or a YAML file of
    them."""

    dev: FurtherQuestions = field(default_factory=FurtherQuestions)
    """further questions, answered by the same cells, on which the best cell under each budget is chosen."""

    metric: str = "f1"
    """metric that cells are compared by: "f1", "em", "recall", or a measure of the scorer, such as KILT's
    "kilt_em"."""

    budgets: list[Annotated[int, Ge(1)]] = field(
        default_factory=lambda: [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000]
    )
    """token budgets per question for each of which the best cell is named."""

    resamples: Annotated[int, Ge(1)] = 1000
    """bootstrap resamples for the intervals of the fitted curve."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shard:
            raise ConfigError("a sweep is not sharded: shard its cells with corag run.")

    @property
    def folder(self) -> Path:
        """The folder of the sweep."""
        if self.out != "auto":
            return Path(self.out)
        return (
            Path("runs") / Path(self.questions).name.split(".")[0] / f"sweep-{common_provenance(self).digest}"
        )


def plan_cells(config: SweepConfig) -> tuple[list[Cell], list[Cell]]:
    """Return the cells over the questions of the report, and the same over the dev questions, if any.

    Raises :class:`ConfigError` for cells, questions or a metric that cannot be, before anything is opened.
    """
    return apply_questions(config, read_cells(config, config.cells, config.grid))


def apply_questions(config: SweepConfig, cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Return cells over the questions of the report, and the same over the dev questions, if any.

    Raises :class:`ConfigError` as :func:`plan_cells` does.
    """
    questions, out = _scorable(config), str(config.folder)
    if not config.overwrite:
        _refuse_other_questions(config.folder, questions)
    test_cells = [replace(cell, config=replace(cell.config, out=out), questions=questions) for cell in cells]
    dev_cells = apply_dev_questions(config, test_cells)
    check_metric([*test_cells, *dev_cells], config.metric)
    return test_cells, dev_cells


def _refuse_other_questions(out: Path, questions: Sequence[Question]) -> None:
    """Raise :class:`ConfigError` where a sweep of other questions, or of more, has left its figures.

    More questions that begin with those of before may go on with them.
    """
    file = out / SWEEP_FILE
    if not file.is_file():
        return
    before = json.loads(file.read_bytes())["questions"]
    if questions_digest(questions[: before["n"]]) != before.get("digest"):
        raise ConfigError(
            f"'{out}' holds a finished sweep of {before['n']:,} questions of {before['file']}, whose figures "
            f"those of these {len(questions):,} would replace: give another 'out', or the options of before "
            "('limit', 'skip', 'strict')."
        )


def questions_digest(questions: Sequence[Question]) -> str:
    """Return what tells some questions in their order from others."""
    return stable_hash("\n".join(question.id for question in questions))


def apply_dev_questions(config: SweepConfig, test_cells: Sequence[Cell]) -> list[Cell]:
    """Return the same cells over the dev questions; none without.

    Raises :class:`ConfigError` if these are among the others, or have one index where the cells search
    several.
    """
    dev = config.dev.beside(config)
    if not dev.questions:
        return []
    questions = _scorable(dev)
    test_questions = test_cells[0].questions
    if Path(dev.questions).resolve() == Path(config.questions).resolve():
        # One file may hold a question twice, retyped, under two ids (as MuSiQue's dev file does).
        texts = {question.text for question in test_questions}
        common = [question for question in questions if question.text in texts]
    else:
        common = in_common(questions, test_questions, is_published=dev.dataset == config.dataset != "jsonl")
    if common:
        raise ConfigError(
            f"{len(common)} of the dev questions are among those that are reported on, such as "
            f"'{common[0].id}': cells must be chosen on others. Take others with skip and limit, or from "
            "another file."
        )
    if dev.has_index and len({repr(cell.config.retriever) for cell in test_cells if cell.searches}) > 1:
        raise ConfigError(
            "the cells search different indexes, but dev.retriever names one: build the indexes over both "
            "corpora and leave it out."
        )
    options = dev.question_options | {"out": str(config.folder / "dev")}
    if dev.has_index:
        options["retriever"] = dev.retriever
    return [replace(cell, config=replace(cell.config, **options), questions=questions) for cell in test_cells]


def _scorable(config: QuestionFile) -> Sequence[Question]:
    """Return the questions by which cells can be compared."""
    what = "a sweep compares scores ('corag run --answers_to answers.csv' answers without)"
    return keep_usable(config.load(), has_gold_answers, "gold answers", what, strict=config.strict)


@asynccontextmanager
async def open_own_engine(config: ModelConfig) -> AsyncIterator[Generator]:
    """Open a model with a request cache large enough for many cells, and close it at the end."""
    generator = await open_model_quietly(config, REPLIES_KEPT)
    try:
        yield generator
    finally:
        await generator.close()


@dataclass(frozen=True)
class Openers:
    """How a sweep comes by its engines and indexes, and what it does with them when it is done."""

    generator: Callable[[ModelConfig], AbstractAsyncContextManager[Generator]] = open_own_engine
    retriever: Callable[[RetrieverConfig], AbstractAsyncContextManager[Retriever]] = open_index_or_client


async def answer_cells(cells: Sequence[Cell], openers: Openers, *, alone: bool = False) -> None:
    """Answer what is not finished, cell after cell, each in the places that the one before leaves.

    ``alone``: each only when the one before has ended.

    Cells of one model come together, in their order otherwise; models in the order in which they first
    appear. One engine is open at a time, since it may fill a GPU; an index stays open for all, and so do Ray
    and its search servers.
    """
    # What is missing is found before hours go into the first cells.
    read_anew()
    for cell in cells:
        cell.options.check_files()
        if cell.needs_index:
            require_index(cell.config.retriever)
    models: dict[str, list[Cell]] = {}
    for cell in cells:
        if not is_answered(cell):
            models.setdefault(repr(cell.config.model), []).append(cell)
    local_groups = []
    servers = SearchServers()
    with ExitStack() as ray:
        for group in models.values():
            first, distinct = group[0].config, _search_configs(group)
            questions = max(len(cell.questions) for cell in group)
            workers = choose_workers(first.workers, first.model, distinct, questions)
            if workers.enabled:
                ray.enter_context(connect(workers))  # the first starts it, the last ends it
                ray.callback(servers.end)
                await answer_in_workers(group, workers, distinct, servers, alone=alone)
            else:
                local_groups.append(group)
    async with AsyncExitStack() as stack:
        indexes: dict[str, Retriever] = {}
        for group in local_groups:
            # Indexes before the engine, which takes what memory is left.
            for cell in group:
                if cell.searches and cell.has_index and (key := repr(cell.config.retriever)) not in indexes:
                    context = openers.retriever(cell.config.retriever)
                    indexes[key] = await stack.enter_async_context(context)
            async with openers.generator(group[0].config.model) as generator:
                retrievers = (
                    indexes.get(repr(cell.config.retriever)) if cell.searches else None for cell in group
                )
                executors = [LocalExecutor(generator, each) for each in retrievers]
                await answer_group(group, executors, alone=alone)


async def answer_in_workers(
    group: Sequence[Cell],
    workers: WorkersConfig,
    retrievers: Sequence[RetrieverConfig],
    servers: SearchServers,
    *,
    alone: bool = False,
) -> None:
    """Answer the cells of one model in workers that have it, and search whatever these cells search."""
    in_flight = max(cell.config.most_in_flight for cell in group)
    model = group[0].config.model
    async with start_workers(workers, model, retrievers, in_flight, REPLIES_KEPT, servers) as pool:
        executors = [pool.executor(_retriever_of(cell)) for cell in group]
        await answer_group(group, executors, alone=alone)


def _retriever_of(cell: Cell) -> RetrieverConfig | None:
    return cell.config.retriever if cell.searches and cell.has_index else None


def _search_configs(group: Sequence[Cell]) -> list[RetrieverConfig]:
    """Return what cells search, each once."""
    configs = {repr(each): each for each in map(_retriever_of, group) if each is not None}
    return [*configs.values()]


async def answer_group(group: Sequence[Cell], executors: Sequence[Executor], *, alone: bool = False) -> None:
    """Answer what cells of one model do not hold yet, each by the workers that have what it searches."""
    for cell, executor in zip(group, executors, strict=True):
        check_model(cell.name, cell.options, cell.config.model, executor.model)
    questions_by_index: dict[tuple[str, int], Sequence[Question]] = {}  # what an index lacks is printed once

    async def answer(cell: Cell, executor: Executor, turn: RunTurn) -> None:
        retriever = cell.config.retriever
        key = (repr(retriever) if executor.index else "", id(cell.questions))
        if key not in questions_by_index:
            questions_by_index[key] = await match_gold(cell.questions, executor.index, retriever.index)
        questions = questions_by_index[key]
        await answer_with(cell.config, cell.method, questions, executor, turn, cell=cell.name)
        cell_provenance(cell).finish(cell.folder / PROVENANCE)

    starts = [partial(answer, *each) for each in zip(group, executors, strict=True)]
    await in_turn(starts, alone=alone)


def is_answered(cell: Cell) -> bool:
    """Whether every question has an answer (a failure is none) with the current settings, model and index."""
    folder = cell.folder
    if not all((folder / file).is_file() for file in (MANIFEST, TRACES)):
        return False
    if cell.config.overwrite and not is_told_apart(cell.config, cell.method):
        return False
    if not cell_provenance(cell).is_finished(folder / PROVENANCE):
        return False
    answered_ids = {name for name, line in read_lines(folder).items() if not line.failed}
    return all(question.id in answered_ids for question in cell.questions)


def cell_provenance(cell: Cell) -> Provenance:
    """Return what a cell's answers depend on, as far as it is known without its engine and index."""
    config = cell.config
    settings = {"run": method_settings(config, cell.method), "model": settings_of(config.model)}
    inputs = identify_weights(config.model.name, config.model.adapter, backend=config.model.backend)
    if cell.searches:
        settings["retriever"] = settings_of(config.retriever)
        inputs |= identify_indexes(config.retriever)
    return Provenance(settings, inputs)
