"""Who answers a call from Python: this process with what is open in it, or workers that open it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from corag.generation.config import ModelConfig
from eval.api.opened import Index, Model, lend_index, lend_model
from eval.experiment.executor import Executor, LocalExecutor
from eval.experiment.open_executor import start_workers
from eval.experiment.workers.choice import choose_workers, without_workers
from eval.experiment.workers.config import WorkersConfig
from retrieval.config import RetrieverConfig


@asynccontextmanager
async def choose_executor(
    workers: WorkersConfig,
    in_flight: int,
    questions: int,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig | None,
) -> AsyncIterator[Executor]:
    """Yield an executor for a call's model and index: workers, or this process.

    A model that is open already is used, unless workers are asked for. Of one that is given by its options
    every GPU gets an engine.

    Args:
        workers: how many, if any.
        in_flight: questions that each worker has at once.
        questions: how many there are in all.
        model: an open model, or its options.
        index: the same of what is searched; None if nothing is.
    """
    retriever = index_options(index) if index is not None else None
    retrievers = [retriever] if retriever is not None else []
    options = model_options(model)
    if isinstance(model, ModelConfig):
        workers = choose_workers(workers, options, retrievers, questions)
    else:
        workers = without_workers(workers, options)
    if workers.enabled:
        async with start_workers(workers, options, retrievers, in_flight) as pool:
            yield pool.executor(retriever)
        return
    async with AsyncExitStack() as stack:
        retriever_engine = None
        if index is not None:  # before the engine, which takes what memory is left
            lent = index.lend() if isinstance(index, Index) else lend_index(index)
            retriever_engine = await stack.enter_async_context(lent)
        if isinstance(model, ModelConfig):
            engine = await stack.enter_async_context(lend_model(options))
        else:
            engine = model.engine
        yield LocalExecutor(engine, retriever_engine)


def model_options(model: Model | ModelConfig) -> ModelConfig:
    """Return the options of an open model, or those of one that workers will open."""
    # An open model's options were settled when it was opened: "auto" is no engine that a run could name.
    return model.with_engine() if isinstance(model, ModelConfig) else model.options


def index_options(index: Index | RetrieverConfig) -> RetrieverConfig:
    """Return the options of an open index, or those of one that workers will open."""
    return index if isinstance(index, RetrieverConfig) else index.options
