"""Calls whose arguments do not fit: a sentence, once, instead of a TypeError for every question."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from corag.core.errors import ConfigError, nearest

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_OTHER_NAMES = {
    "top_k": "k", "topk": "k", "n_results": "k", "num": "k", "limit": "k",
    "max_new_tokens": "max_tokens", "max_output_tokens": "max_tokens", "num_return_sequences": "n",
    "stop_sequences": "stop",
}  # fmt: skip


def says_arguments(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make a method raise :class:`ConfigError` where its arguments do not fit, which says what it takes.

    Such a call fails for every question alike, so it ends a run as other mistakes of settings do.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except TypeError:
            if problem := _problem(function.__name__, signature, args, kwargs):
                raise ConfigError(problem) from None
            raise  # of what it calls

    return checked


def _problem(
    name: str, signature: inspect.Signature, args: tuple[object, ...], kwargs: dict[str, object]
) -> str:
    """Say what is wrong with a call, "" if nothing is."""
    names = [each for each in signature.parameters if each != "self"]
    for each in kwargs:
        if each not in names:
            ours = _OTHER_NAMES.get(each, "")
            hint = f"write {ours}={kwargs[each]!r:.20}." if ours in names else nearest(each, names)
            return f"{name} has no argument '{each}': {hint}"
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return f"{name}: {error}: its arguments are {', '.join(names)}."
    return ""
