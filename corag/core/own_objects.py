"""What users bring along: functions and objects of their own, by name (FILE.py:NAME) or from Python.

A method, a model and something to search may all be the user's. From the shell they are named; from Python
they are handed over, and :func:`register` gives each a name that options can hold, as long as it lives.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
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
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from corag.core.errors import ConfigError, CoragError, nearest, reason
from corag.core.files import file_digest
from corag.core.seeds import stable_hash

_NAMED = re.compile(r"(?!https?:)[^:]*[^:\s]:[A-Za-z_]\w*(?:\.\w+)*(?:#\d+)?")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def is_named(name: str) -> bool:
    """Whether a name says where to find something of the user's, as FILE.py:NAME or MODULE:NAME.

    >>> is_named("ideas/my_method.py:my_method"), is_named("indexes/bm25"), is_named("http://localhost:8000")
    (True, False, False)
    """
    return _NAMED.fullmatch(name) is not None


def is_own(name: str) -> bool:
    """Whether the name of an index or model is that of an object or function of the user's.

    A folder may be called alike, such as ``indexes/bm25:v2``: what lies on disk goes first.
    """
    return is_named(name) and not Path(name).expanduser().is_dir()


def load_named(spec: str, option: str) -> Any:
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


def load_source(source: str, option: str) -> ModuleType:
    """Return the module that a Python file or the name of a module stands for."""
    return _load_file(source, file_digest(source), option) if source.endswith(".py") else _load_module(source)


@lru_cache(maxsize=64)
def _load_file(source: str, digest: str, option: str) -> ModuleType:
    """Run a Python file, once for each content that it has had."""
    path = Path(source).resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file '{source}': check {option}.")
    name = f"own_method_{path.stem}_{digest}"  # of its own, so that a file called json.py hides nothing
    spec = importlib.util.spec_from_file_location(name, path)
    loader = spec.loader if spec else None
    assert spec is not None and loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up the module that they are defined in
    run_code(lambda: loader.exec_module(module), source)
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

    return typing.cast("ModuleType", run_code(load, name))


def run_code(load: Callable[[], Any], source: str) -> Any:
    """Run code of the user's, which may raise anything: that becomes a sentence with the line to look at."""
    try:
        return load()
    except CoragError:
        raise
    except Exception as error:
        raise ConfigError(
            f"'{source}' cannot be loaded: {type(error).__name__}: {reason(error)} ({place_of(error)})."
        ) from error


def place_of(error: BaseException) -> str:
    """Say where code of the user's failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return f"{innermost.filename}, line {innermost.lineno}"


def source_digest(code: Callable[..., Any] | type) -> str:
    """Return 16 hexadecimal digits of the source text of a function or class, the same however it was loaded.

    Only its own text counts, comments included. What it refers to does not: after an edit of a helper, of a
    constant or of what a closure holds, answer into another folder.
    """
    try:
        # Dedented, so that the digest stays when it moves into a function or out of one.
        return stable_hash(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError):
        # Typed in at a prompt or made by exec: no text is stored, but its code has names and constants.
        codes = [inspect.unwrap(each).__code__ for each in _functions(code)]
        return stable_hash(" ".join(map(_code_text, codes)))


def _functions(code: Callable[..., Any] | type) -> list[Any]:
    members = vars(code).values() if isinstance(code, type) else [code]
    return [each for each in members if isinstance(inspect.unwrap(each), types.FunctionType)]


def _code_text(code: types.CodeType) -> str:
    constants = [repr(value) for value in code.co_consts if not inspect.iscode(value)]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def describe(thing: Any) -> str:
    """Return the dotted name of a function, or of the class of an object.

    >>> describe(describe), describe(Path("a"))
    ('corag.core.own_objects.describe', 'pathlib.PosixPath')
    """
    if isinstance(thing, partial):
        return describe(thing.func)
    if isinstance(owner := getattr(thing, "__self__", None), object) and inspect.ismethod(thing):
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{_dotted(kind)}.{thing.__name__}"
    return _dotted(thing if isinstance(thing, type) or inspect.isroutine(thing) else type(thing))


def _dotted(code: Any) -> str:
    module = getattr(code, "__module__", None) or ""
    module = re.sub(r"^own_method_(.*)_[0-9a-f]+$", r"\1", module)  # a file that was named
    name = getattr(code, "__qualname__", type(code).__qualname__).rpartition("<locals>.")[2]
    return name if module in ("", "builtins", "__main__") else f"{module}.{name}"


def identify(thing: Any) -> str:
    """Return what tells a function or object from others, the same in every process: its name and content.

    Its own ``fingerprint`` (a text, or a function without arguments that returns one) if it has one; else,
    of the user's own code, a digest of the source; and the name of a model, if it says one.
    """
    name = describe(thing)
    if isinstance(thing, partial):
        return f"{identify(thing.func)}:{stable_hash(_ADDRESS.sub('', repr((thing.args, thing.keywords))))}"
    owner = thing.__self__ if inspect.ismethod(thing) else thing
    own = getattr(owner, "fingerprint", None)
    own = own() if callable(own) else own
    if isinstance(own, str) and own:
        return f"{name}:{own}"
    code = owner if inspect.isroutine(owner) else type(owner)
    digest = "" if _is_of_a_library(code) else f":{source_digest(code)}"
    called = next((value for value in map(partial(_text_at, owner), _MODEL_NAMES) if value), "")
    return f"{name}{f'({called})' if called else ''}{digest}"


_MODEL_NAMES = ("model_name", "model", "model_id")  # LangChain, DSPy, LlamaIndex


def _text_at(thing: Any, name: str) -> str:
    value = getattr(thing, name, "")
    return value if isinstance(value, str) else ""


def _is_of_a_library(code: Any) -> bool:
    """Whether code was installed: a new version of a library is no change of the user's."""
    module = sys.modules.get(getattr(code, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return getattr(code, "__module__", "") == "builtins" or inspect.isbuiltin(code)
    standard = Path(file).is_relative_to(sysconfig.get_path("stdlib"))
    return standard or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


_registered: dict[str, Callable[[], Any]] = {}
_registering = threading.Lock()


def register(thing: Any) -> str:
    """Give an object of this process a name, by which options can refer to it while it lives.

    That is MODULE:NAME, by which other processes can load it, if the module has it under its name; else it
    has a number, MODULE:NAME#1. The same object always has the same name.
    """
    module, _, name = describe(thing).rpartition(".")
    name = re.sub(r"[^\w.]+", "", name)  # of <lambda>
    base = f"{module or '__main__'}:{name}"
    if getattr(sys.modules.get(module or "__main__"), name, None) is thing:
        _registered[base] = _reference(thing)
        return base
    with _registering:
        for number in range(1, len(_registered) + 2):
            key = f"{base}#{number}"
            known = _registered.get(key, lambda: None)()
            if known is None or _is_same(known, thing):
                _registered[key] = _reference(thing)
                return key
    raise AssertionError("there is one name more than objects")


def _is_same(one: Any, other: Any) -> bool:
    # A bound method is made anew each time that it is looked up.
    return one is other or (inspect.ismethod(one) and inspect.ismethod(other) and bool(one == other))


def _reference(thing: Any) -> Callable[[], Any]:
    """Return what gives an object back while it lives; whoever opened it keeps it alive."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def find_own(name: str, option: str) -> Any:
    """Return the object that was registered under a name, else what FILE.py:NAME or MODULE:NAME names.

    Raises :class:`ConfigError` if there is none.
    """
    if (thing := _registered.get(name, lambda: None)()) is not None:
        return thing
    if "#" in name or name.startswith("__main__:"):
        raise ConfigError(
            f"'{name}' is an object of another process, which this one does not have: put it into a "
            "file, and name it as FILE.py:NAME."
        )
    thing = load_named(name, option)
    if isinstance(thing, type):
        raise ConfigError(f"'{name}' is a class: name an object of it, or a function.")
    return thing


def fingerprint_of(name: str) -> str:
    """Return what :func:`identify` says of an own object by its name, "" for what is none, or not here."""
    if not is_own(name):
        return ""
    try:
        return identify(find_own(name, "its name"))
    except ConfigError:
        return ""
