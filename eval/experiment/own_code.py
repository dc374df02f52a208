"""What tells the code of a user's function from other code, so that a run is not resumed with another.

It is the code that Python runs, with that of the functions and the constants which it names. So comments and
whatever else its file does may change between two calls that answer one run.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_NO_VALUE = inspect.Parameter.empty


def code_digest(function: Callable[..., Any]) -> str:
    """Return 16 hexadecimal digits of a function's code and of the user's code that it calls by name."""
    return hashlib.sha256("\n".join(_Reader(function).read(function)).encode()).hexdigest()[:16]


class _Reader:
    """Reads a function, and from there on what lies beside it: not libraries, which are the environment."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = inspect.unwrap(function).__code__
        self._homes = {_folder(code.co_filename)}
        if not Path(code.co_filename).is_file():  # typed in at a prompt or in a notebook
            self._homes.add(str(Path.cwd()))
        self._module = getattr(function, "__module__", "")
        self._seen: set[int] = set()

    def read(self, value: Any, name: str = "") -> Iterator[str]:
        """Write a value in lines that are the same in every process."""
        wrapped = getattr(value, "__wrapped__", None)
        if isinstance(wrapped, FunctionType):  # as functools.cache and decorators have it
            yield from self.read(wrapped, name)
        if isinstance(value, MethodType):
            yield from self.read(value.__func__, name)
            yield from self.read(value.__self__, name)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, CodeType):
            yield from self._code(value)
        elif (text := _text(value, keeps=name.isupper())) is not None:
            yield f"{name} = {text}"

    def _function(self, function: FunctionType) -> Iterator[str]:
        code = function.__code__
        if id(function) in self._seen or _folder(code.co_filename) not in self._homes:
            return
        self._seen.add(id(function))
        yield f"def {function.__qualname__}"
        yield from self._code(code)
        for value in (function.__defaults__ or (), function.__kwdefaults__ or {}):
            yield from self.read(value, "DEFAULTS")
        named, changed = _names_in(code)
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        around = {name: _content(cell) for name, cell in cells}
        for name in sorted(around.keys() - changed):
            yield from self.read(around[name], name)
        for name in sorted((named & function.__globals__.keys()) - changed):
            yield from self._global(function.__globals__[name], name, named)

    def _global(self, value: Any, name: str, named: set[str]) -> Iterator[str]:
        if not isinstance(value, ModuleType):
            yield from self.read(value, name)
        elif _folder(getattr(value, "__file__", None) or "") in self._homes:
            for each in sorted(named & vars(value).keys()):
                yield from self.read(vars(value)[each], each)

    def _class(self, kind: type[Any]) -> Iterator[str]:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
        beside = kind.__module__ == self._module or _folder(file) in self._homes
        if id(kind) in self._seen or not beside:
            return
        self._seen.add(id(kind))
        yield f"class {kind.__qualname__}"
        for name, value in sorted(vars(kind).items()):
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            if isinstance(value, property):
                value = value.fget
            if isinstance(value, FunctionType) or not name.startswith("__"):
                yield from self.read(value, name)

    def _code(self, code: CodeType) -> Iterator[str]:
        """Write what code does, without where it stands."""
        yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_cellvars}"
        for value in code.co_consts:
            yield from self.read(value, "CONST")


def _names_in(code: CodeType) -> tuple[set[str], set[str]]:
    """Return the names that code looks up, and those around it that it sets: counters, not constants."""
    named, changed = set(code.co_names), set()
    for each in dis.get_instructions(code):
        if each.opname in ("STORE_GLOBAL", "STORE_DEREF"):
            changed.add(str(each.argval))
    for inner in filter(inspect.iscode, code.co_consts):
        its_names, its_changed = _names_in(inner)
        named |= its_names
        changed |= its_changed
    return named, changed


def _text(value: Any, *, keeps: bool) -> str | None:
    """Write a constant; None for what is none. ``keeps``: lists and mappings are constants too."""
    if isinstance(value, _PLAIN):
        return repr(value)
    parts: list[str | None]
    if isinstance(value, tuple | frozenset) or (keeps and isinstance(value, list | set)):
        parts = [_text(each, keeps=keeps) for each in value]
        if isinstance(value, set | frozenset):  # whose order differs between processes
            parts.sort(key=str)
    elif keeps and isinstance(value, Mapping):
        parts = [_text(pair, keeps=True) for pair in value.items()]
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [_text(getattr(value, each.name, None), keeps=True) for each in fields(value)]
    else:
        return None
    return f"{type(value).__name__}({', '.join(map(str, parts))})"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return _NO_VALUE


def _folder(file: str) -> str:
    """Return the folder of a file; what has no file, as a prompt's input, shares one."""
    folder = Path(file).parent
    return str(folder.resolve()) if Path(file).is_file() else str(folder)
