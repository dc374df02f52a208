"""How a method that lives in a file or module of the user's becomes known."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import textwrap
import traceback
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from typing_extensions import TypeIs

from corag.core.errors import ConfigError, CoragError, nearest, reason
from corag.core.files import file_digest
from corag.core.method import Method, MethodConfig
from corag.core.seeds import stable_hash
from corag.core.tools import Tools
from corag.core.types import Answer, Question

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
    module = _load_file(source, file_digest(source)) if source.endswith(".py") else _load_module(source)
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

    ``where``: what to call it in messages. Raises :class:`ConfigError` for other parameters than a method's,
    and for options that cannot be.
    """
    described = method if isinstance(method, Method) else Method(method)
    function = described.function
    parameters = list(inspect.signature(function).parameters)
    if parameters not in PARAMETERS:
        raise ConfigError(
            f"'{where}' takes ({', '.join(parameters)}), but a method takes (question, tools) or (question, "
            f"tools, config): see {PAGE}."
        )
    summary = described.summary or (inspect.getdoc(function) or "a method of your own").splitlines()[0]
    code = source_digest(function)
    if len(parameters) == 2:
        return replace(described, function=_Unconfigured(function), summary=summary, code=code)
    config = _find_config(function, where)
    _check_defaults(config, where)
    return replace(described, config=config, summary=summary, code=code)


def source_digest(function: Callable[..., Any]) -> str:
    """Return 16 hexadecimal digits of a function's source text, the same from the shell and from Python.

    Only the function's own text counts, comments included. What it refers to does not: after an edit of a
    helper, of a constant or of what a closure holds, answer into another folder.
    """
    try:
        # Dedented, so that the digest stays when a method moves into a function or out of one.
        return stable_hash(textwrap.dedent(inspect.getsource(function)))
    except OSError:
        # Typed in at a prompt or made by exec: no text is stored, but its code has names and constants.
        code = inspect.unwrap(function).__code__
        constants = [repr(value) for value in code.co_consts if not inspect.iscode(value)]
        return stable_hash(f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}")


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


def _find_config(function: Callable[..., Any], spec: str) -> type[MethodConfig]:
    """Find the class of a method's options in the annotation of its last parameter."""
    config = _run(lambda: typing.get_type_hints(function), spec).get("config")
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
