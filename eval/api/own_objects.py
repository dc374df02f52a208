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
from eval.api.opened import index_handle, model_handle, open_handle
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
        given = signature.bind(*args, **kwargs)
        async with AsyncExitStack() as stack:
            for name in openers.keys() & given.arguments.keys():
                opened = openers[name](given.arguments[name])
                given.arguments[name] = await stack.enter_async_context(opened)
            return await function(*given.args, **given.kwargs)

    return opening


def _is_open(thing: Any) -> bool:
    return hasattr(thing, "engine") and hasattr(thing, "options")


@asynccontextmanager
async def _using_model(given: Any) -> AsyncIterator[Any]:
    if _is_open(given) or isinstance(given, ModelConfig):
        yield given
        return
    if given is None or isinstance(given, str | os.PathLike):
        shown = "default" if given is None else os.fspath(given)
        raise ConfigError(
            f"the model is {given!r}: give what open_model returned, as in open_model({shown!r}), or an "
            "object or function that answers prompts."
        )
    async with open_handle(model_handle(given, {})) as model:
        yield model


@asynccontextmanager
async def _using_index(given: Any) -> AsyncIterator[Any]:
    if given is None or _is_open(given) or isinstance(given, RetrieverConfig):
        yield given
        return
    if isinstance(given, str | os.PathLike):
        raise ConfigError(
            f"the index is {given!r}: give what open_index returned, as in "
            f"open_index({os.fspath(given)!r}), or an object or function that is searched."
        )
    async with open_handle(await index_handle([given], {})) as index:
        yield index
