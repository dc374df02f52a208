"""Who answers the questions of a run: this process with what it opens, or workers that open it elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from core.errors import ConfigError
from core.method import MethodConfig
from eval.experiment.backends import (
    Setup,
    check_setup,
    open_backends,
    open_searched,
    require_abilities,
    require_index,
)
from eval.experiment.opened import Index, Model
from eval.experiment.opening import quiet
from eval.workers.config import WorkersConfig
from eval.workers.ray_pool import RayPool, engine_of, ray_pool
from eval.workers.work import NoModel, ThisProcess, Workforce
from generation.cached import REPLIES_KEPT
from generation.config import ModelConfig
from retrieval.config import RetrieverConfig


@asynccontextmanager
async def open_crew(setup: Setup, workers: WorkersConfig, in_flight: int) -> AsyncIterator[Workforce]:
    """Open model and index of a command, here or in workers, and close them at the end.

    ``in_flight``: questions that each worker has at once.
    """
    if not workers.wanted:
        async with open_backends(setup) as (generator, retriever):
            yield ThisProcess(generator, retriever)
        return
    check_setup(setup)
    for name in setup.method:
        refuse_sharing(name, setup.of(name))
    searched = [setup.retriever] if setup.searches else []
    async with hired(workers, setup.model, searched, in_flight) as pool:
        crew = pool.crew(setup.retriever if setup.searches else None)
        for name in setup.method:
            require_abilities(name, setup.of(name).needs(), crew.model)
        yield crew


@asynccontextmanager
async def open_searcher(retriever: RetrieverConfig) -> AsyncIterator[Workforce]:
    """Open an index in this process, for work that asks no model, and close it at the end."""
    require_index(retriever)
    async with open_searched(retriever) as index:
        yield ThisProcess(NoModel(), index)


@asynccontextmanager
async def hired(
    workers: WorkersConfig,
    model: ModelConfig,
    searched: Sequence[RetrieverConfig],
    in_flight: int,
    capacity: int = REPLIES_KEPT,
) -> AsyncIterator[RayPool]:
    """Start workers with a model and what they search, saying so, and end them with the block.

    ``capacity``: most replies of a kind that each remembers.
    """
    async with AsyncExitStack() as stack:
        with quiet("starting workers with Ray", "the workers are ready") as say:
            starting = ray_pool(workers, engine_of(model.settled(), capacity), searched, in_flight=in_flight)
            pool = await stack.enter_async_context(starting)
            for line in pool.about:
                say(f"corag: {line}")
        yield pool


@asynccontextmanager
async def crew_of(
    workers: WorkersConfig,
    in_flight: int,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig | None,
) -> AsyncIterator[Workforce]:
    """Return those who answer a call from Python: this process with what is open, or workers.

    Raises :class:`ConfigError` if only options were given, and no workers that could open them.
    """
    if workers.wanted:
        searched = options_of_index(index) if index is not None else None
        every = [searched] if searched is not None else []
        async with hired(workers, options_of_model(model), every, in_flight) as pool:
            yield pool.crew(searched)
        return
    if isinstance(model, ModelConfig) or isinstance(index, RetrieverConfig):
        raise ConfigError(
            "options of a model or an index are for workers to open, and there are none: open them with "
            "open_model and open_index, or add workers=ray_workers(...)."
        )
    yield ThisProcess(model.engine, index.engine if index is not None else None)


def options_of_model(model: Model | ModelConfig) -> ModelConfig:
    """Return the options of a model that is open, or may be opened elsewhere."""
    return model.settled() if isinstance(model, ModelConfig) else model.options


def options_of_index(index: Index | RetrieverConfig) -> RetrieverConfig:
    """Return the options of an index that is open, or may be opened elsewhere."""
    return index if isinstance(index, RetrieverConfig) else index.options


def refuse_sharing(name: str, options: MethodConfig) -> None:
    """Raise :class:`ConfigError` if the questions of a method's run share something: several cannot."""
    if options.shared_state(()) is not None:
        raise ConfigError(
            f"{name} with these options shares a budget among the questions of a run, which is kept in one "
            "process: leave out --workers, or choose options without one."
        )
