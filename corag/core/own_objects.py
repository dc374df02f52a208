"""What users bring along: functions and objects of their own, by name (FILE.py:NAME) or from Python.

A method, a model and something to search may all be the user's. From the shell they are named; from Python
they are arguments, and :func:`register` gives each a name that options can hold, as long as it lives.

What tells one from others is its ``fingerprint``, a text or a function that returns one; else a digest of its
source text, of the file that was named or of the function or class; else its name alone. What it holds or
calls is not looked at.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import re
import sys
import sysconfig
import textwrap
import threading
import traceback
import types
import typing
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, CoragError, nearest, reason
from corag.core.seeds import stable_hash
from corag.core.system.files import file_digest

_ROOT = Path(__file__).parents[2]
_OBJECT_NAME = re.compile(r"(?!https?:)[^:]*[^:\s]:[A-Za-z_]\w*(?:\.\w+)*(?:#\d+)?")


def is_object_name(name: str) -> bool:
    """Whether a name says where to find something of the user's, as FILE.py:NAME or MODULE:NAME.

    >>> [is_object_name(name) for name in ("ideas/my_method.py:my_method", "indexes/bm25", "http://host:80")]
    [True, False, False]
    """
    return _OBJECT_NAME.fullmatch(name) is not None


def is_user_object(name: str) -> bool:
    """Whether the name of an index or model is that of an object or function of the user's.

    A folder may be called alike, such as ``indexes/bm25:v2``: what lies on disk goes first.
    """
    return is_object_name(name) and not Path(name).expanduser().is_dir()


def load_object(spec: str, option: str) -> Any:
    """Load what FILE.py:NAME or MODULE:NAME names.

    ``option``: that names it, for messages. Raises :class:`ConfigError` for a file, module or name that is
    not there, or code that fails.
    """
    source, _, name = spec.rpartition(":")
    module = load_source(source, option)
    missing = object()
    if (value := getattr(module, name, missing)) is missing:
        raise ConfigError(
            f"'{source}' has no '{name}': {nearest(name, [each for each in vars(module) if each[0] != '_'])}"
        )
    return value


def load_source(source: str, option: str) -> types.ModuleType:
    """Return the module that a Python file or the name of a module stands for."""
    if source.endswith(".py"):
        if not Path(source).is_file():
            raise ConfigError(f"there is no file '{source}': check '{option}'.")
        return _load_file(source, file_digest(source))
    return typing.cast("types.ModuleType", run_code(lambda: importlib.import_module(source), source))


@lru_cache(maxsize=64)
def _load_file(source: str, digest: str) -> types.ModuleType:
    """Run a Python file, once for each content that it has had."""
    path = Path(source).resolve()
    # A name of its own, so that a file called json.py hides nothing.
    module = types.ModuleType(f"own_method_{path.stem}_{digest}")
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:  # for what lies beside it; last, so that it hides nothing either
        sys.path.append(str(path.parent))
    sys.modules[module.__name__] = module  # dataclasses look up the module that they are defined in
    # Not by Python's loader: of two versions of one second and size, its caches keep the first.
    run_code(lambda: exec(compile(path.read_bytes(), str(path), "exec"), vars(module)), source)
    return module


def run_code(load: Callable[[], Any], source: str) -> Any:
    """Run code of the user's, which may raise anything: that becomes a sentence with the line to look at."""
    try:
        return load()
    except CoragError:
        raise
    except Exception as error:
        raise ConfigError(
            f"'{source}' cannot be loaded: {type(error).__name__}: {reason(error)} ({error_location(error)})."
        ) from error


def error_location(error: BaseException) -> str:
    """Say where code of the user's failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return f"{innermost.filename}, line {innermost.lineno}"


def user_code_location(error: BaseException) -> str:
    """Say where code of the user's was when it failed, or what it called did; "" if none of it ran.

    A file below the working directory is named from there.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if not frame.filename.startswith("<frozen") and not is_of_a_library(frame.filename):
            path = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
            return f"{path}, line {frame.lineno}"
    return ""


_registry: dict[str, Callable[[], Any]] = {}
_registering = threading.Lock()


def register(target: Any) -> str:
    """Give an object of this process a name, by which options can refer to it while it lives.

    That is MODULE:NAME, by which other processes can load it, if the module has it under its name and no
    earlier object of that name lives; else it has a number, MODULE:NAME#1. The same object always has the
    same name. Raises :class:`ConfigError` for a class.
    """
    if isinstance(target, type):
        raise ConfigError(
            f"{describe(target)} is a class: give an object of it, as {target.__name__}(...), or a function."
        )
    module, _, name = describe(target).rpartition(".")
    name = re.sub(r"[^\w.]+", "", name)  # of <lambda>
    base = f"{module or '__main__'}:{name}"
    is_named_so = getattr(sys.modules.get(module or "__main__"), name, None) is target
    with _registering:
        for key, reference in _registry.items():
            if _is_same(reference(), target):
                return key
        # One that was redefined is another; the earlier is still referred to by its name.
        numbered = (f"{base}#{number}" for number in itertools.count(1))
        keys = itertools.chain([base] if is_named_so else [], numbered)
        key = next(key for key in keys if _registry.get(key, lambda: None)() is None)
        _registry[key] = _reference(target)
    return key


def _is_same(one: Any, other: Any) -> bool:
    # A bound method is made anew each time that it is looked up.
    return one is other or (inspect.ismethod(one) and inspect.ismethod(other) and bool(one == other))


def _reference(target: Any) -> Callable[[], Any]:
    """Return what gives an object back while it lives; its opener keeps it alive."""
    try:
        return weakref.ref(target)
    except TypeError:
        return lambda: target


def find_user_object(name: str, option: str) -> Any:
    """Return the object that was registered under a name, else what FILE.py:NAME or MODULE:NAME names.

    Raises :class:`ConfigError` if there is none.
    """
    if (target := _registry.get(name, lambda: None)()) is not None:
        return target
    if "#" in name or name.startswith("__main__:"):
        raise ConfigError(
            f"'{name}' is an object of another process, which this one does not have: put it into a "
            "file, and name it as FILE.py:NAME."
        )
    target = load_object(name, option)
    if isinstance(target, type):
        raise ConfigError(f"'{name}' is a class: name an object of it, or a function.")
    return target


class Identity(typing.NamedTuple):
    """What tells an object of the user's from others: a text, and what that was made of."""

    text: str
    known_by: str


def identify(name: str) -> Identity | None:
    """Identify an object of the user's by its name in options; None for what is none, or not here."""
    if not is_user_object(name):
        return None
    try:
        target = find_user_object(name, "its name")
    except ConfigError:
        return None
    owner = target.__self__ if inspect.ismethod(target) else target
    owner = owner.func if isinstance(owner, partial) else owner
    fingerprint = owner.fingerprint if hasattr(owner, "fingerprint") else ""
    fingerprint = fingerprint() if callable(fingerprint) else fingerprint
    if isinstance(fingerprint, str) and fingerprint:
        return Identity(f"{describe(target)}:{fingerprint}", "fingerprint")
    if digest := source_digest(target, name):
        return Identity(f"{describe(target)}:{digest}", "source text")
    return Identity(describe(target), "name")


def source_digest(target: Any, name: str = "") -> str:
    """Return 16 hexadecimal digits of the source text of a method, a model or something to search.

    That is the whole file for what is named FILE.py:NAME, else the text of the function or of the object's
    class, dedented, so that it stays when it moves into a function or out of one. "" where no text is known,
    as of what was typed in at a prompt.
    """
    file = name.rpartition(":")[0]
    if file.endswith(".py"):
        return file_digest(file)
    try:
        return stable_hash(textwrap.dedent(inspect.getsource(_code(target))))
    except (OSError, TypeError):
        return ""


def describe(target: Any) -> str:
    """Return the dotted name of a function, or of the class of an object.

    >>> describe(describe), describe(re.compile("a"))
    ('corag.core.own_objects.describe', 're.Pattern')
    """
    if inspect.ismethod(target):
        return f"{describe(target.__self__)}.{target.__name__}"
    code = _code(target)
    module = re.sub(r"^own_method_(.*)_[0-9a-f]+$", r"\1", code.__module__ or "")  # a file that was named
    name = code.__qualname__.rpartition("<locals>.")[2]
    return name if module in ("", "builtins", "__main__") else f"{module}.{name}"


def _code(target: Any) -> Any:
    """Return the function, or the class of an object."""
    target = target.func if isinstance(target, partial) else target
    target = target.__self__ if inspect.ismethod(target) else target
    return target if isinstance(target, type) or inspect.isroutine(target) else type(target)


def is_of_a_library(file: str) -> bool:
    """Whether a Python file was installed, or is this package's."""
    if Path(file).is_relative_to(_ROOT):  # in a clone, the user's own modules may lie beside our packages
        package = _ROOT / Path(file).relative_to(_ROOT).parts[0]
        if (package / "py.typed").is_file():
            return True
    standard = Path(file).is_relative_to(sysconfig.get_path("stdlib"))
    return standard or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


class OwnFunction:
    """A function of the user's to be awaited.

    Coroutine functions are awaited on our loop, many at once. A plain function is called in one thread of its
    own, one call after the other, since nothing says that it may be called from several.
    """

    def __init__(self, target: Any, method: str, expectation: str) -> None:
        """``method``: the one that is called of an object that has it; ``expectation``: for the message.

        Raises :class:`ConfigError` for what cannot be called.
        """
        is_function = inspect.isroutine(target) or isinstance(target, partial)
        self.function: Callable[..., Any] = target if is_function else getattr(target, method, target)
        if not callable(self.function):
            raise ConfigError(f"{describe(target)} has no {method} and cannot be called, but {expectation}.")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="own")

    async def __call__(self, *arguments: Any, **settings: Any) -> Any:
        """Call it and return what it returns."""
        call = partial(self.function, *arguments, **settings)
        if inspect.iscoroutinefunction(call):
            return await call()
        value = await asyncio.get_running_loop().run_in_executor(self._thread, call)
        return await value if inspect.isawaitable(value) else value

    def close(self) -> None:
        """End its thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
