"""What tells a function or object of the user's from others: its name, its source and what it holds.

What it holds is what makes two objects of one class two models: ``self.path``, a default, what a closure or a
global holds, a base class. Left out is what changes by being used (a count, a log, a cache: what its own code
assigns or grows), what is private or secret, and what looks made up at random.
"""

from __future__ import annotations

import dis
import inspect
import re
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path, PurePath
from typing import Any

from corag.core.seeds import stable_hash

_DEPTH = 3  # how far what is held by what is held counts
_MOST_ITEMS = 1000  # of a long list every n-th counts, and its length
_ROOT = Path(__file__).parents[2]
_MODEL_NAMES = (
    "model_name",
    "model",
    "model_id",
    "name_or_path",
)  # of LangChain, DSPy, LlamaIndex, pipelines
_GROWS = frozenset(("append", "extend", "insert", "add", "update", "pop", "popleft", "clear", "setdefault"))
_MAKERS = frozenset(("__init__", "__post_init__", "__new__", "__setstate__", "model_post_init"))
SECRET = re.compile(r"(^|_)(key|token|secret|password)$")
_RANDOM = re.compile(r"[0-9a-f]{12,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def describe(target: Any) -> str:
    """Return the dotted name of a function, or of the class of an object.

    >>> describe(describe), describe(re.compile("a"))
    ('corag.core.own_identity.describe', 're.Pattern')
    """
    if isinstance(target, partial):
        return describe(target.func)
    if isinstance(owner := getattr(target, "__self__", None), object) and inspect.ismethod(target):
        kind = owner if isinstance(owner, type) else type(owner)
        return f"{_dotted_name(kind)}.{target.__name__}"
    return _dotted_name(target if isinstance(target, type) or inspect.isroutine(target) else type(target))


def _dotted_name(code: Any) -> str:
    module = getattr(code, "__module__", None) or ""
    module = re.sub(r"^own_method_(.*)_[0-9a-f]+$", r"\1", module)  # a file that was named
    name = getattr(code, "__qualname__", type(code).__qualname__).rpartition("<locals>.")[2]
    return name if module in ("", "builtins", "__main__") else f"{module}.{name}"


def code_digest(target: Any) -> str:
    """Return 16 hexadecimal digits of the code of a function or of an object's class, whatever it holds."""
    owner = _owner(target.func if isinstance(target, partial) else target)
    code = owner if isinstance(owner, type) or inspect.isroutine(owner) else type(owner)
    return stable_hash(_Content().lines(code, _DEPTH))


def given_fingerprint(target: Any) -> str:
    """Return the object's own ``fingerprint``, a text or a function that returns one; "" if it has none."""
    if isinstance(target, partial):
        return given_fingerprint(target.func)
    fingerprint = getattr(_owner(target), "fingerprint", None)
    fingerprint = fingerprint() if callable(fingerprint) else fingerprint
    return fingerprint if isinstance(fingerprint, str) else ""


def identify(target: Any) -> str:
    """Return what tells a function or object from others, the same in every process: its name and content.

    Its own ``fingerprint`` if it has one; else the name of a model, if it says one, and a digest of what is
    known of it: the source of the user's own code (the whole file's, if that was named as FILE.py:NAME) and
    the plain values that it holds.
    """
    if isinstance(target, partial):
        arguments = _Content().text([*target.args, *sorted(target.keywords.items())], _DEPTH)
        return f"{identify(target.func)}:{stable_hash(arguments)}"
    name = describe(target)
    if fingerprint := given_fingerprint(target):
        return f"{name}:{fingerprint}"
    owner = _owner(target)
    model_name = _model_name(owner)
    content = _Content().lines(owner, _DEPTH, model_name)
    return f"{name}{f'({model_name})' if model_name else ''}{f':{stable_hash(content)}' if content else ''}"


def source_digest(function: Callable[..., Any]) -> str:
    """Return 16 hexadecimal digits of a function's source and of what it holds, however it was loaded.

    Comments count, too; what it holds are its defaults, and the values and functions of the user's that it
    has from a closure or that are global.
    """
    return stable_hash(_Content().lines(function, _DEPTH, "", whole_file=False))


def _owner(target: Any) -> Any:
    return target.__self__ if inspect.ismethod(target) else target


def _model_name(target: Any) -> str:
    for name in _MODEL_NAMES:
        with suppress(Exception):  # a property may raise anything
            if isinstance(value := getattr(target, name, ""), str) and value:
                return value
    return ""


class _Content:
    """Collects what is known of an object; what was met before counts once, so that no circle is endless."""

    def __init__(self) -> None:
        self._visited_values: list[Any] = []  # kept, so that no other gets its id

    def lines(self, target: Any, depth: int, model_name: str = "", *, whole_file: bool = True) -> str:
        """Say what a function, class or object is and holds, "" if that is nothing but a library's code."""
        is_code = isinstance(target, type) or inspect.isroutine(target)
        code = target if is_code else type(target)
        lines: list[str] = []
        if whole_file and (of_file := re.match(r"own_method_.*_([0-9a-f]+)$", code.__module__ or "")):
            lines.append(of_file[1])
        for each in code.__mro__ if isinstance(code, type) else [code]:
            if not _is_of_a_library(each):
                lines.append(_source(each))
                lines += [line for function in _functions(each) for line in self._around(function, depth)]
        if not is_code:
            flat = _is_of_a_library(type(target))
            for name, value in sorted(_settings_of(target).items()):
                if not (name in _MODEL_NAMES and isinstance(value, str) and value == model_name):
                    text = self.text(value, depth - 1, flat=flat)
                    lines += [f"{name}={text}"] if text else []
        return "\n".join(lines)

    def _around(self, function: Any, depth: int) -> Iterator[str]:
        """Yield what a function has from elsewhere: its defaults, its closure, and globals."""
        code = function.__code__
        changed_names, stored_into = _changes_of(code)
        by_name = {f"default {n}": each for n, each in enumerate(function.__defaults__ or ())}
        by_name |= function.__kwdefaults__ or {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # nothing is in it yet
                by_name[name] = cell.cell_contents
        for name in sorted(_global_names(code)):
            if name in function.__globals__ and not name.startswith("__"):
                by_name[name] = function.__globals__[name]
        for name, value in by_name.items():
            if (
                name in changed_names
                or (isinstance(value, dict) and name in stored_into)
                or SECRET.search(name)
            ):
                continue
            if text := self.text(value, depth - 1):
                yield f"{name}={text}"

    def text(self, value: Any, depth: int, *, flat: bool = False) -> str:
        """Write a value: "" for what is not known to stay the same from one process to the next."""
        if value is None or isinstance(value, bool | int | float | complex | bytes):
            return repr(value)
        if isinstance(value, str | PurePath):
            return "" if _RANDOM.fullmatch(str(value)) else repr(str(value))
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return self._items(value, depth, flat=flat)
        if (
            depth < 1
            or isinstance(value, types.ModuleType)
            or any(value is each for each in self._visited_values)
        ):
            return ""
        self._visited_values.append(value)
        if isinstance(value, partial):
            return self.text([value.func, *value.args, *sorted(value.keywords.items())], depth)
        owner = _owner(value)
        code = owner if isinstance(owner, type) or inspect.isroutine(owner) else type(owner)
        with suppress(Exception):  # whatever it calls a fingerprint
            if fingerprint := given_fingerprint(value):
                return f"{describe(value)} {fingerprint}"
        if _is_of_a_library(code):
            return f"{describe(value)} {_model_name(owner)}"
        return f"{describe(value)} {self.lines(owner, depth)}"

    def _items(self, value: Any, depth: int, *, flat: bool) -> str:
        if isinstance(value, Mapping):
            items: Sequence[Any] = [each for each in value.items() if not SECRET.search(str(each[0]))]
        else:
            items = list(value)
        step = max(1, len(items) // _MOST_ITEMS)
        texts = [
            "" if flat and isinstance(each, Mapping | list | set) else self.text(each, depth, flat=flat)
            for each in items[::step]
        ]
        if isinstance(value, set | frozenset):
            texts.sort()
        # One that is empty may be a log; one of what is not known says nothing.
        return f"{len(items)} {texts}" if any(texts) else ""


def _settings_of(target: Any) -> dict[str, Any]:
    """Return the attributes of an object that are settings: none that its own code changes later."""
    kind = type(target)
    attributes: dict[str, Any] = dict(getattr(target, "__dict__", {}))
    changed_names: set[str] = set()
    stored_into: set[str] = set()
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(target, name):
                attributes[name] = getattr(target, name)
        for function in _functions(base):
            if function.__name__ not in _MAKERS:
                changes = _changes_of(function.__code__)
                changed_names |= changes[0]
                stored_into |= changes[1]
    return {
        name: value
        for name, value in attributes.items()
        if name[0] != "_"
        and not SECRET.search(name)
        and name not in changed_names
        and not (isinstance(value, dict) and name in stored_into)
        and not isinstance(inspect.getattr_static(kind, name, None), cached_property)
    }


@lru_cache(maxsize=1024)
def _changes_of(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that code assigns or grows, and those of what it may store items into."""
    changed_names: set[str] = set()
    stored_into: set[str] = set()
    before = ""
    for each in dis.get_instructions(code):
        name = each.argval if isinstance(each.argval, str) else ""
        if each.opname in ("STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL"):
            changed_names.add(name)
        elif each.opname in ("LOAD_ATTR", "LOAD_METHOD") and name in _GROWS:
            changed_names.add(before)
        elif each.opname == "STORE_SUBSCR":
            stored_into.update(code.co_names, code.co_freevars)
        before = name
    for inner in filter(inspect.iscode, code.co_consts):
        more = _changes_of(inner)
        changed_names |= more[0]
        stored_into |= more[1]
    return frozenset(changed_names), frozenset(stored_into)


def _global_names(code: types.CodeType) -> set[str]:
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    names = {each.argval for each in dis.get_instructions(code) if each.opname in loads}
    return names.union(*(_global_names(each) for each in code.co_consts if inspect.iscode(each)))


def _source(code: Any) -> str:
    """Return the source text of a function or class, or what its code says where no text tells it."""
    functions = _functions(code)
    if getattr(code, "__name__", "") != "<lambda>":  # several may be on one line
        with suppress(OSError, TypeError):
            # Dedented, so that the digest stays when it moves into a function or out of one.
            return textwrap.dedent(inspect.getsource(code))
    # Typed in at a prompt or made by exec: no text is stored, but its code has names and constants.
    return " ".join(_code_text(each.__code__) for each in functions)


def _functions(code: Any) -> list[Any]:
    members = vars(code).values() if isinstance(code, type) else [code]
    bare = (inspect.unwrap(getattr(each, "__func__", each)) for each in members)
    return [each for each in bare if isinstance(each, types.FunctionType)]


def _code_text(code: types.CodeType) -> str:
    constants = [
        _code_text(value)
        if inspect.iscode(value)
        else repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
        for value in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def _is_of_a_library(code: Any) -> bool:
    """Whether code was installed, or is this package's: a new version of it is no change of the user's."""
    name = getattr(code, "__module__", None) or ""
    if name == "__main__":  # whose file is a library's if that runs the user's code: python -m pytest
        return False
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return name == "builtins" or inspect.isbuiltin(code)
    return is_of_a_library(file)


def is_of_a_library(file: str) -> bool:
    """Whether a Python file was installed, or is this package's."""
    if Path(file).is_relative_to(_ROOT):  # in a clone, the user's own modules may lie beside our packages
        package = _ROOT / Path(file).relative_to(_ROOT).parts[0]
        if (package / "py.typed").is_file():
            return True
    standard = Path(file).is_relative_to(sysconfig.get_path("stdlib"))
    return standard or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
