"""What commands know of a method, and how one that lives in a file or module of the user's becomes known."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from core.errors import ConfigError, CoragError, nearest, reason
from core.files import file_digest
from core.method import MethodConfig
from core.tools import Tools
from core.types import Answer, Question

PAGE = "docs/guides/your_own_method.md"
PARAMETERS = ["question", "tools"], ["question", "tools", "config"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A method: its algorithm, the class of its options, one line about it.

    ``code``: of a method of the user's own, what identifies its file, so that a run is not resumed with other
    code; else "".
    """

    function: Callable[..., Awaitable[Answer]]
    config: type[MethodConfig]
    summary: str
    code: str = ""

    @property
    def searches(self) -> bool:
        """Whether the method searches, as far as it is known."""
        return self.config.SEARCHES

    @property
    def needs_index(self) -> bool:
        """Whether the method cannot do without an index.

        Of a function without options of its own nothing is known: its first search will tell.
        """
        return self.searches and self.config is not MethodConfig


def is_own(name: str) -> bool:
    """Whether a method's name says where to find it, as in FILE.py:FUNCTION or MODULE:FUNCTION."""
    return ":" in name


def short_name(name: str) -> str:
    """Return what a method is called, in options, tables and folders.

    >>> short_name("ideas/my_method.py:my_method")
    'my_method'
    """
    return name.rpartition(":")[2]


def load_entry(spec: str) -> Entry:
    """Load a method of the user's own from FILE.py:FUNCTION or MODULE:FUNCTION.

    Raises :class:`ConfigError` saying what is missing or wrong with it.
    """
    source, _, name = spec.rpartition(":")
    if not source or not name.isidentifier():
        raise ConfigError(
            f"'{spec}' is no method: write FILE.py:FUNCTION or MODULE:FUNCTION, as {PAGE} shows, or the name "
            "of one that 'corag methods' lists."
        )
    module = _load_file(source, file_digest(source)) if source.endswith(".py") else _load_module(source)
    function = getattr(module, name, None)
    if not inspect.iscoroutinefunction(function):
        found = [key for key, value in vars(module).items() if inspect.iscoroutinefunction(value)]
        hint = nearest(name, found) if found else "it has none at all."
        raise ConfigError(f"'{source}' has no 'async def {name}': {hint}")
    return entry_of_function(function, spec, file_digest(module.__file__ or ""))


def entry_of_function(function: Callable[..., Awaitable[Answer]], where: str, code: str) -> Entry:
    """Describe an async function of the user's. Its options are those of its parameter ``config``, if any.

    ``where``: what to call it in messages. ``code``: what tells its code from other code. Raises
    :class:`ConfigError` for other parameters than a method's, and for options that cannot be.
    """
    about = (inspect.getdoc(function) or "a method of your own").splitlines()[0]
    parameters = list(inspect.signature(function).parameters)
    if parameters not in PARAMETERS:
        raise ConfigError(
            f"'{where}' takes ({', '.join(parameters)}), but a method takes (question, tools) or (question, "
            f"tools, config): see {PAGE}."
        )
    if len(parameters) == 2:
        return Entry(_Unconfigured(function), MethodConfig, about, code)
    config = _config_of(function, where)
    _check_defaults(config, where)
    return Entry(function, config, about, code)


@dataclass(frozen=True, slots=True)
class _Unconfigured:
    """A method without options, called as those with options are. Two of one function are equal."""

    function: Callable[..., Awaitable[Answer]]

    async def __call__(self, question: Question, tools: Tools, config: MethodConfig) -> Answer:
        """Answer a question."""
        return await self.function(question, tools)


@lru_cache(maxsize=64)
def _load_file(source: str, digest: str) -> ModuleType:
    """Run a Python file, once for each content that it has had."""
    path = Path(source).resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file '{source}': check --method.")
    name = f"own_method_{path.stem}_{digest}"  # of its own, so that a file called json.py hides nothing
    spec = importlib.util.spec_from_file_location(name, path)
    loader = spec.loader if spec else None
    assert spec is not None and loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up the module that they are defined in
    _run(lambda: loader.exec_module(module), source)
    return module


def _load_module(name: str) -> ModuleType:
    def load() -> ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise  # it is there, but imports what is not
            raise ConfigError(
                f"there is no module '{name}': put its folder on PYTHONPATH, or name its file, as in "
                f"{name}.py:FUNCTION."
            ) from None

    return typing.cast("ModuleType", _run(load, name))


def _run(load: Callable[[], Any], source: str) -> Any:
    """Run code of the user's, which may raise anything: that becomes a sentence with the line to look at."""
    try:
        return load()
    except CoragError:
        raise
    except Exception as error:
        raise ConfigError(
            f"'{source}' cannot be loaded: {type(error).__name__}: {reason(error)} ({_place(error)})."
        ) from error


def _place(error: Exception) -> str:
    """Say where code of the user's failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return f"{innermost.filename}, line {innermost.lineno}"


def _config_of(function: Callable[..., Any], spec: str) -> type[MethodConfig]:
    """Find the class of a method's options in the annotation of its last parameter."""
    config = _run(lambda: typing.get_type_hints(function), spec).get("config")
    if not (
        isinstance(config, type)
        and issubclass(config, MethodConfig)
        and "__dataclass_fields__" in vars(config)
    ):
        raise ConfigError(
            f"the parameter 'config' of '{spec}' must be annotated with a class of options, a frozen "
            f"dataclass that derives from core.method.MethodConfig: see {PAGE}."
        )
    return config


def _check_defaults(config: type[MethodConfig], spec: str) -> None:
    try:
        config()
    except TypeError as error:
        raise ConfigError(f"every option of '{spec}' needs a default: {reason(error)}.") from None
