"""How a method that lives in a file or module of the user's becomes known."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from typing_extensions import TypeIs

from corag.core.errors import ConfigError, DataError, nearest, reason
from corag.core.method import Method, MethodConfig
from corag.core.own_objects import load_source, run_code, source_digest
from corag.core.protocols import Generation
from corag.core.tools import SearchStep, Tools
from corag.core.types import Answer, Hit, Passage, Question

PAGE = "docs/guides/your_own_method.md"
PARAMETERS = ["question", "tools"], ["question", "tools", "config"]


def is_own(name: str) -> bool:
    """Whether a method's name says where to find it, as in FILE.py:FUNCTION or MODULE:FUNCTION."""
    return ":" in name


def short_name(name: str) -> str:
    """Return what a method is called, in options, tables and folders.

    >>> short_name("ideas/my_method.py:my_method")
    'my_method'
    """
    return name.rpartition(":")[2]


def load_method(spec: str) -> Method:
    """Load a method of the user's own from FILE.py:NAME or MODULE:NAME.

    NAME is an async function, or a :class:`Method` with more to know of one. Raises :class:`ConfigError`
    saying what is missing or wrong with it.
    """
    source, _, name = spec.rpartition(":")
    if not source or not name.isidentifier():
        raise ConfigError(
            f"'{spec}' is no method: write FILE.py:FUNCTION or MODULE:FUNCTION, as {PAGE} shows, or the name "
            "of one that 'corag list' lists."
        )
    module = load_source(source, "method")
    method = getattr(module, name, None)
    if not is_method(method):
        others = [key for key, value in vars(module).items() if is_method(value)]
        hint = nearest(name, others) if others else "it has none at all."
        raise ConfigError(f"'{source}' has no 'async def {name}': {hint}")
    return make_method(method, spec)


def is_method(value: Any) -> TypeIs[Method | Callable[..., Awaitable[Answer]]]:
    """Whether a value is what can be made a method: an async function, or one with more to know of it."""
    return inspect.iscoroutinefunction(value.function if isinstance(value, Method) else value)


def make_method(method: Method | Callable[..., Awaitable[Answer]], where: str) -> Method:
    """Describe a method of the user's. Its options are those of its function's parameter ``config``, if any.

    ``where``: its name in messages, FILE.py:NAME where it is of a file. Raises :class:`ConfigError` for other
    parameters than a method's, and for options that cannot be.
    """
    entry = method if isinstance(method, Method) else Method(method)
    function = entry.function
    parameters = list(inspect.signature(function).parameters)
    if parameters not in PARAMETERS:
        raise ConfigError(
            f"'{where}' takes ({', '.join(parameters)}), but a method takes (question, tools) or (question, "
            f"tools, config): see {PAGE}."
        )
    summary = entry.summary or (inspect.getdoc(function) or "a method of your own").splitlines()[0]
    code, name = source_digest(function, where), short_name(where)
    if len(parameters) == 2:
        forgiving = _Forgiving(function, name, takes_config=False)
        return replace(entry, function=forgiving, summary=summary, code=code)
    config = _find_config(function, where)
    _check_defaults(config, where)
    forgiving = _Forgiving(function, name, takes_config=True)
    return replace(entry, function=forgiving, config=config, summary=summary, code=code)


@dataclass(frozen=True, slots=True)
class _Forgiving:
    """A method of the user's, which may return a plain text. Two of one function are equal.

    ``name``: its name. ``takes_config``: whether it has options.
    """

    function: Callable[..., Awaitable[Any]]
    name: str
    takes_config: bool

    async def __call__(self, question: Question, tools: Tools, config: MethodConfig) -> Answer:
        """Answer a question. Raises :class:`DataError` for what is no answer."""
        options = (config,) if self.takes_config else ()
        return as_answer(await self.function(question, tools, *options), tools, self.name)


def as_answer(value: Any, tools: Tools, name: str) -> Answer:
    """Return what a method named ``name`` returned as an answer.

    A text is one: what the method collected is then all that it searched for. Raises :class:`DataError` for
    anything else.
    """
    if isinstance(value, Generation):  # a whole reply of tools.generate
        value = value.text
    if isinstance(value, str):
        searches = [step for step in tools.steps if isinstance(step, SearchStep)]
        ids = dict.fromkeys(hit.passage.id for step in searches for hit in step.hits)
        return Answer(value, tuple(ids), steps=len(searches))
    if not isinstance(value, Answer):
        raise DataError(f"{name} returned {value!r:.80}: return a text, or corag.Answer(text, passage_ids).")
    if not isinstance(cast("object", value.text), str):
        raise DataError(f"{name} returned an Answer whose text is {value.text!r:.80}: give it a text.")
    return replace(value, passage_ids=tuple(map(_id_of, value.passage_ids)))


def _id_of(passage: Any) -> str:
    """Return the id of a passage, or of a hit; an id is one."""
    passage = passage.passage if isinstance(passage, Hit) else passage
    return passage.id if isinstance(passage, Passage) else str(passage)


def _find_config(function: Callable[..., Any], spec: str) -> type[MethodConfig]:
    """Find the class of a method's options in the annotation of its last parameter."""
    config = run_code(lambda: typing.get_type_hints(function), spec).get("config")
    if not (
        isinstance(config, type)
        and issubclass(config, MethodConfig)
        and "__dataclass_fields__" in vars(config)
    ):
        raise ConfigError(
            f"the parameter 'config' of '{spec}' must be annotated with a class of options, a frozen "
            f"dataclass that derives from corag.core.method.MethodConfig: see {PAGE}."
        )
    return config


def _check_defaults(config: type[MethodConfig], spec: str) -> None:
    try:
        config()
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"every option of '{spec}' needs a default: {reason(error)}") from None
