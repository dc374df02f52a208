"""Packages whose public names are loaded when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    An eager ``__init__`` would bring torch, vLLM or a JVM to everybody who imports any module of the package.
    ``places``: the defining module of each public name, or "module:attribute" where it has another name
    there.
    """

    def getattribute(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = places[name].partition(":")
        return getattr(import_module(module), attribute or name)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return getattribute, listed
