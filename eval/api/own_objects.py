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
    places = {"model": "model", "index": "index", "dev_index": "index"}

    @wraps(function)
    async def opening(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        bound_arguments = signature.bind(*args, **kwargs)
        async with AsyncExitStack() as stack:
            for name in places.keys() & bound_arguments.arguments.keys():
                context = _using(places[name], bound_arguments.arguments[name])
                bound_arguments.arguments[name] = await stack.enter_async_context(context)
            return await function(*bound_arguments.args, **bound_arguments.kwargs)

    return opening


@asynccontextmanager
async def _using(what: str, value: Any) -> AsyncIterator[Any]:
    """Yield what is open or described already, or an object of the user's, opened for the block."""
    if isinstance(value, Model | ModelConfig | Index | RetrieverConfig) or (
        value is None and what == "index"
    ):
        yield value
        return
    if value is None or isinstance(value, str | os.PathLike):
        name = "default" if value is None else os.fspath(value)
        raise ConfigError(
            f"the {what} is {value!r}: give what open_{what} returned, as in open_{what}({name!r}), or an "
            "object or function of your own."
        )
    if what == "model":
        async with open_handle(model_handle(value, {})) as model:
            yield model
    else:
        async with open_handle(await index_handle([value], {})) as index:
            yield index
