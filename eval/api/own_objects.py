"""Models and indexes that callers bring along: objects and functions in the place of what we open."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from corag.core.errors import ConfigError
from corag.generation.config import ModelConfig
from eval.api.opened import Index, Model, index_handle, model_handle, open_handle
from retrieval.config import RetrieverConfig

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def takes_own_objects(
    function: Callable[Arguments, Coroutine[Any, Any, Result]],
) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
    """Let the arguments ``model``, ``index`` and ``dev_index`` be objects of the user's.

    They are opened for the length of the call.
    """
    signature = inspect.signature(function)
    openers = {"model": _using_model, "index": _using_index, "dev_index": _using_index}

    @wraps(function)
    async def opening(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        bound_arguments = signature.bind(*args, **kwargs)
        async with AsyncExitStack() as stack:
            for name in openers.keys() & bound_arguments.arguments.keys():
                context = openers[name](bound_arguments.arguments[name])
                bound_arguments.arguments[name] = await stack.enter_async_context(context)
            return await function(*bound_arguments.args, **bound_arguments.kwargs)

    return opening


@asynccontextmanager
async def _using_model(value: Any) -> AsyncIterator[Any]:
    if isinstance(value, Model | ModelConfig):
        yield value
        return
    if value is None or isinstance(value, str | os.PathLike):
        model_name = "default" if value is None else os.fspath(value)
        raise ConfigError(
            f"the model is {value!r}: give what open_model returned, as in open_model({model_name!r}), or an "
            "object or function that answers prompts."
        )
    async with open_handle(model_handle(value, {})) as model:
        yield model


@asynccontextmanager
async def _using_index(value: Any) -> AsyncIterator[Any]:
    if value is None or isinstance(value, Index | RetrieverConfig):
        yield value
        return
    if isinstance(value, str | os.PathLike):
        raise ConfigError(
            f"the index is {value!r}: give what open_index returned, as in "
            f"open_index({os.fspath(value)!r}), or an object or function that is searched."
        )
    async with open_handle(await index_handle([value], {})) as index:
        yield index
