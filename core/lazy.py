"""Packages whose public names are loaded when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, names: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__all__``, ``__getattr__`` and ``__dir__``.

    An eager ``__init__`` would bring torch, vLLM or a JVM to everybody who imports any module of the package.
    ``names``: by the module that defines them, separated by spaces. None may be that of a submodule, which
    would hide it once it is imported.
    """
    places = {name: module for module, listed in names.items() for name in listed.split()}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    def everything() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return sorted(places), load, everything
