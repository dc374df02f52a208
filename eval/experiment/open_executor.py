"""Open an executor for a command: in this process, or in workers that Ray starts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from corag.generation.cached import REPLIES_KEPT
from corag.generation.config import ModelConfig
from corag.generation.open import open_generator
from eval.experiment.backends import Setup, open_backends, open_index_or_client, require_index
from eval.experiment.executor import Executor, LocalExecutor, NoModel
from eval.experiment.opening import quiet
from eval.experiment.workers.choice import choose_workers
from eval.experiment.workers.config import WorkersConfig
from eval.experiment.workers.ray_pool import RayPool, ray_pool
from eval.experiment.workers.search_servers import SearchServers
from retrieval.config import RetrieverConfig
from retrieval.search.folders import search_device_note


@asynccontextmanager
async def open_executor(
    setup: Setup, workers: WorkersConfig, in_flight: int, questions: int
) -> AsyncIterator[Executor]:
    """Open a command's model and index, here or in workers, and close them at the end.

    ``in_flight``: questions that each worker has at once, of so many ``questions`` in all.
    """
    retriever_config = setup.retriever if setup.searches else None
    retrievers = [] if retriever_config is None else [retriever_config]
    workers = choose_workers(workers, setup.model, retrievers, questions)
    if not workers.enabled:
        async with open_backends(setup) as (generator, retriever):
            yield LocalExecutor(generator, retriever)
        return
    async with start_workers(workers, setup.model, retrievers, in_flight) as pool:
        yield pool.executor(retriever_config)


@asynccontextmanager
async def open_search_executor(retriever: RetrieverConfig) -> AsyncIterator[Executor]:
    """Open an index in this process, for a task that uses no model, and close it at the end."""
    require_index(retriever)
    async with open_index_or_client(retriever) as index:
        yield LocalExecutor(NoModel(), index)


@asynccontextmanager
async def start_workers(
    workers: WorkersConfig,
    model: ModelConfig,
    retrievers: Sequence[RetrieverConfig],
    in_flight: int,
    capacity: int = REPLIES_KEPT,
    servers: SearchServers | None = None,
) -> AsyncIterator[RayPool]:
    """Start workers with a model and what they search, show that, and end them with the block.

    ``in_flight``: questions that each worker has at once. ``capacity``: most replies of a kind that each
    remembers. ``servers``: search servers that outlive the block.
    """
    async with AsyncExitStack() as stack:
        with quiet("starting workers with Ray", "the workers are ready") as print_line:
            engine = partial(open_generator, model.with_engine(), capacity)
            workers_open = ray_pool(workers, engine, retrievers, in_flight=in_flight, servers=servers)
            pool = await stack.enter_async_context(workers_open)
            for line in (*pool.about, *filter(None, map(search_device_note, retrievers))):
                print_line(f"corag: {line}")
        # Outside of "quiet": what is printed from here on is the run's own.
        yield pool
