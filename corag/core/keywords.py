"""Calls whose arguments do not fit: a sentence, once, instead of a TypeError for every question.

Such a call fails for every question alike, so it ends a run as other mistakes of settings do.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import ParamSpec, SupportsFloat, SupportsIndex, TypeVar

from corag.core.errors import ConfigError, nearest

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_OTHER_NAMES = {
    "top_k": "k", "topk": "k", "n_results": "k", "num": "k", "limit": "k",
    "max_new_tokens": "max_tokens", "max_output_tokens": "max_tokens", "num_return_sequences": "n",
    "stop_sequences": "stop",
}  # fmt: skip


def check_arguments(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make a method raise :class:`ConfigError` where its arguments do not fit, which says what it takes.

    Such a call fails for every question alike, so it ends a run as other mistakes of settings do.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except TypeError:
            refuse_wrong_arguments(function.__name__, signature, args, kwargs)
            raise  # of what it calls

    return call


def refuse_wrong_arguments(
    name: str, signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Raise :class:`ConfigError` if a call's arguments do not fit; ``name``: what is called."""
    if problem := _problem(name, signature, args, kwargs):
        raise ConfigError(problem)


def whole_number(value: object, what: str) -> int:
    """Return a whole number of whatever type, such as numpy's; ``what``: its name in messages.

    Raises :class:`ConfigError` for what is none, a text of digits and a bool among them.
    """
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        return operator.index(value)
    raise ConfigError(f"{what} must be a whole number, but it is {value!r:.80}.")


def number(value: object, what: str) -> float:
    """Return a number. Raises :class:`ConfigError` for what is none, a text of digits among them."""
    if isinstance(value, SupportsFloat) and not isinstance(value, bool):
        return float(value)
    raise ConfigError(f"{what} must be a number, but it is {value!r:.80}.")


def texts(value: object, what: str) -> tuple[str, ...]:
    """Return some texts, of one alone itself. Raises :class:`ConfigError` for what is none."""
    items = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [None]
    if all(isinstance(each, str) for each in items):
        return tuple(map(str, items))
    raise ConfigError(f"{what} must be a list of texts, but it is {value!r:.80}.")


def _problem(
    name: str, signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> str:
    """Say what is wrong with a call, "" if nothing is."""
    kinds = {each.name: each.kind for each in signature.parameters.values() if each.name != "self"}
    any_keyword = inspect.Parameter.VAR_KEYWORD in kinds.values()
    names = [each for each, kind in kinds.items() if kind is not inspect.Parameter.VAR_KEYWORD]
    for each in kwargs:
        if each not in names and not any_keyword:
            ours = _OTHER_NAMES.get(each, "")
            hint = f"write {ours}={kwargs[each]!r:.20}." if ours in names else nearest(each, names)
            return f"{name} has no argument '{each}': {hint}"
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return f"{name}: {error}: its arguments are {', '.join(names)}."
    return ""
