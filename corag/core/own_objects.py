"""What users bring along: functions and objects of their own, by name (FILE.py:NAME) or from Python.

A method, a model and something to search may all be the user's. From the shell they are named; from Python
they are handed over, and :func:`register` gives each a name that options can hold, as long as it lives.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import linecache
import re
import sys
import threading
import traceback
import types
import typing
import weakref
from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, CoragError, nearest, reason
from corag.core.files import file_digest
from corag.core.own_identity import code_digest, describe, given_fingerprint, identify, is_of_a_library

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
    return _load_file(source, file_digest(source), option) if source.endswith(".py") else _load_module(source)


@lru_cache(maxsize=64)
def _load_file(source: str, digest: str, option: str) -> types.ModuleType:
    """Run a Python file, once for each content that it has had."""
    path = Path(source).resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file '{source}': check {option}.")
    name = f"own_method_{path.stem}_{digest}"  # of its own, so that a file called json.py hides nothing
    loader = _UncachedLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:  # for what lies beside it; last, so that it hides nothing either
        sys.path.append(str(path.parent))
    sys.modules[name] = module  # dataclasses look up the module that they are defined in
    run_code(lambda: loader.exec_module(module), source)
    return module


class _UncachedLoader(SourceFileLoader):
    """Compiles a file each time: of two versions of one second and size, Python's caches keep the first."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Return the code that the file now holds."""
        linecache.cache.pop(self.path, None)
        return self.source_to_code(self.get_data(self.path), self.path)


def _load_module(name: str) -> types.ModuleType:
    def load() -> types.ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise  # it is there, but imports what is not
            raise ConfigError(
                f"there is no module '{name}': put its folder on PYTHONPATH, or name its file, as in "
                f"{name}.py:FUNCTION."
            ) from None

    return typing.cast("types.ModuleType", run_code(load, name))


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
        keys = [base, *(f"{base}#{number}" for number in range(1, len(_registry) + 2))]
        living = {
            key: living_object
            for key in keys
            if (living_object := _registry.get(key, lambda: None)()) is not None
        }
        if same := [key for key, living_object in living.items() if _is_same(living_object, target)]:
            return same[0]
        # One that was redefined is another: whoever opened the earlier still refers to it by its name.
        for key in keys if is_named_so else keys[1:]:
            if key not in living:
                _registry[key] = _reference(target)
                return key
    raise AssertionError("there is one name more than objects")


def _is_same(one: Any, other: Any) -> bool:
    # A bound method is made anew each time that it is looked up.
    return one is other or (inspect.ismethod(one) and inspect.ismethod(other) and bool(one == other))


def _reference(target: Any) -> Callable[[], Any]:
    """Return what gives an object back while it lives; whoever opened it keeps it alive."""
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


def fingerprint_of(name: str) -> str:
    """Return what :func:`identify` says of an own object by its name, "" for what is none, or not here."""
    if not is_user_object(name):
        return ""
    try:
        return identify(find_user_object(name, "its name"))
    except ConfigError:
        return ""


def code_behind_fingerprint(name: str) -> str:
    """Return a digest of the code of an own object that says a ``fingerprint``; "" for others."""
    if not is_user_object(name):
        return ""
    try:
        target = find_user_object(name, "its name")
    except ConfigError:
        return ""
    return code_digest(target) if given_fingerprint(target) else ""


def known_by_content(name: str) -> bool:
    """Whether an own object says no ``fingerprint``, so that some changes of it are not noticed."""
    if not is_user_object(name):
        return False
    try:
        return not given_fingerprint(find_user_object(name, "its name"))
    except ConfigError:
        return False
