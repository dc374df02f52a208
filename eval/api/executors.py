"""Who answers a call from Python: this process with what is open in it, or workers that open it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from corag.core.errors import ConfigError
from corag.generation.config import ModelConfig
from eval.api.opened import Index, Model
from eval.experiment.executor import Executor, LocalExecutor
from eval.experiment.open_executor import start_workers
from eval.experiment.workers.config import WorkersConfig
from retrieval.config import RetrieverConfig


@asynccontextmanager
async def choose_executor(
    workers: WorkersConfig,
    in_flight: int,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig | None,
) -> AsyncIterator[Executor]:
    """Yield an executor for a call's model and index: workers if some are configured, else this process.

    Args:
        workers: how many, if any.
        in_flight: questions that each worker has at once.
        model: an open model; for workers its options are enough.
        index: the same of what is searched; None if nothing is.

    Raises:
        ConfigError: if there are options alone, and no workers that could open what they name.
    """
    if workers.enabled:
        retriever = index_options(index) if index is not None else None
        retrievers = [retriever] if retriever is not None else []
        async with start_workers(workers, model_options(model), retrievers, in_flight) as pool:
            yield pool.executor(retriever)
        return
    if isinstance(model, ModelConfig) or isinstance(index, RetrieverConfig):
        raise ConfigError(
            "options of a model or an index are for workers to open, and there are none: open them with "
            "open_model and open_index, or add workers=ray_workers(...)."
        )
    yield LocalExecutor(model.engine, index.engine if index is not None else None)


def model_options(model: Model | ModelConfig) -> ModelConfig:
    """Return the options of an open model, or those of one that workers will open."""
    # An open model's options were settled when it was opened: "auto" is no engine that a run could name.
    return model.settled() if isinstance(model, ModelConfig) else model.options


def index_options(index: Index | RetrieverConfig) -> RetrieverConfig:
    """Return the options of an open index, or those of one that workers will open."""
    return index if isinstance(index, RetrieverConfig) else index.options
