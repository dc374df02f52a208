"""Calling what users bring along: which of its functions, with which of our settings, and in which thread.

A setting reaches it if its function has a parameter of that name (or of another that the setting has); if it
is a pydantic object, as LangChain's and LlamaIndex's are, with a field of that name; or if it takes any
keywords and has that one among its own defaults ``kwargs``, as DSPy's have. Else it is not told: nothing is
sent that an object might refuse.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from corag.core.errors import ConfigError
from corag.core.own_identity import describe

Settings = Mapping[str, Sequence[str]]
"""The names that libraries have for a setting, by ours."""


_BATCHES = ("prompts", "input_list", "queries", "query_list")  # as vLLM and FlashRAG call them
_TEXT_LISTS = ("list[str]", "List[str]", "Sequence[str]", "collections.abc.Sequence[str]")


class OwnCall:
    """A function or object of the user's, to be awaited with one text and settings.

    Coroutine functions are awaited on our loop, many at once. A plain function is called in one thread of its
    own, one call after the other, since nothing says that it may be called from several.

    Attributes:
        name: the dotted name of the function or class.
        takes: the settings that reach it, by our names.
        first: the name of its first parameter.
        batch: whether that takes a list of what is asked, by its name or annotation: it is given one of one.
    """

    def __init__(self, target: Any, functions: Sequence[str], settings: Settings, requirement: str) -> None:
        """Find out how it is called.

        Args:
            target: the function or object.
            functions: names of what an object is called by, the best first; each may have a twin to await,
                whose name begins with "a".
            settings: those that it may be given.
            requirement: what it must have, for the message.

        Raises:
            ConfigError: if it can neither be called nor has one of these functions.
        """
        self.name = describe(target)
        self._target = target
        self._attribute, self._function = _find_function(target, functions)
        if self._function is None:
            raise ConfigError(f"{self.name} has {_list_functions(target)}, but {requirement}.")
        try:
            parameters = list(inspect.signature(self._function).parameters.values())
        except (TypeError, ValueError):  # of C, or with a signature that Python cannot read
            parameters = []
        first = next((each for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD), None)
        self.first = first.name if first else ""
        self.batch = first is not None and (
            first.name in _BATCHES or str(first.annotation).removeprefix("typing.").startswith(_TEXT_LISTS)
        )
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        keyword_names = [each.name for each in parameters if each.kind in by_name and each is not first]
        object_fields = _fields_of(target) if self._attribute else ()
        any_keyword = any(each.kind is each.VAR_KEYWORD for each in parameters)
        defaults = _call_defaults(target) if any_keyword else ()
        self._parameters = _match_names(settings, [*keyword_names, *defaults])
        self._fields = {
            ours: theirs
            for ours, theirs in _match_names(settings, object_fields).items()
            if ours not in self._parameters
        }
        self.takes: Collection[str] = {*self._parameters, *self._fields}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="own")

    async def __call__(self, argument: Any, settings: Mapping[str, Any]) -> Any:
        """Call it with an argument and those of the settings that reach it, and return what it returns."""
        function = self._function
        argument = [argument] if self.batch else argument
        if self._fields:
            changes = {
                theirs: self._field_value(theirs, settings[ours])
                for ours, theirs in self._fields.items()
                if ours in settings
            }
            function = getattr(_changed_copy(self._target, changes), self._attribute)
        keywords = {theirs: settings[ours] for ours, theirs in self._parameters.items() if ours in settings}
        assert function is not None
        if _is_async(function):
            return await function(argument, **keywords)
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(self._thread, lambda: function(argument, **keywords))
        return await value if inspect.isawaitable(value) else value

    def _field_value(self, name: str, value: Any) -> Any:
        # A retriever over one of LangChain's vector stores.
        return {**self._target.search_kwargs, "k": value} if name == "search_kwargs" else value

    def close(self) -> None:
        """End its thread. The object itself is its owner's."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _find_function(target: Any, functions: Sequence[str]) -> tuple[str, Callable[..., Any] | None]:
    """Return what an object is called by, with its name; a function is called as it is."""
    if inspect.isroutine(target) or isinstance(target, partial):
        return "", target
    for name in functions:
        twins = ("acall",) if name == "__call__" else (f"a{name}",)
        for each in (*twins, name):
            function = getattr(target, each, None)
            if callable(function) and not (each == "__call__" and isinstance(target, type)):
                return each, function
    return "", None


def _is_async(function: Callable[..., Any]) -> bool:
    inner = getattr(function, "func", function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    )


def _match_names(settings: Settings, names: Collection[str]) -> dict[str, str]:
    """Return the name that each setting has among some names, by ours."""
    matches = {
        ours: next((each for each in theirs if each in names), "") for ours, theirs in settings.items()
    }
    return {ours: theirs for ours, theirs in matches.items() if theirs}


def _call_defaults(target: Any) -> Collection[str]:
    """Return the settings that an object of DSPy's keeps for its calls."""
    defaults = getattr(target, "kwargs", None)
    if not isinstance(defaults, dict):
        return ()
    # DSPy remembers replies on disk: only this makes two samples of one prompt two requests.
    is_dspy = any(each.__module__.startswith("dspy.") for each in type(target).__mro__)
    return (*defaults, "rollout_id") if is_dspy else tuple(defaults)


def _fields_of(target: Any) -> Collection[str]:
    """Return the fields of a pydantic object, and the one by which LlamaIndex's retrievers know their k."""
    of_llama_index = ("_similarity_top_k", "similarity_top_k")
    return (
        *getattr(type(target), "model_fields", ()),
        *(each for each in of_llama_index if hasattr(target, each)),
    )


def _changed_copy(target: Any, changes: Mapping[str, Any]) -> Any:
    """Return a shallow copy with some attributes changed: clients, indexes and weights are shared."""
    if hasattr(target, "model_copy"):
        return target.model_copy(update=dict(changes))
    other = copy.copy(target)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def _list_functions(target: Any) -> str:
    if type(target).__module__ == "builtins":
        return "no such functions"
    names = [
        name for name in dir(target) if name[0] != "_" and callable(inspect.getattr_static(target, name))
    ]
    return (
        f"the functions {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
        if names
        else "no functions"
    )
