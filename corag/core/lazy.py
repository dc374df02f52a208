"""Loading late: public names of packages when first asked for (PEP 562), big libraries one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

importing = threading.RLock()
"""Held while torch, transformers, vLLM or sentence-transformers is imported.

They import each other in circles. Two threads that begin at different places, as an engine and an encoder
that open side by side do, would see half of a module: "cannot import name ... from partially initialized
module".
"""


def lazy_exports(
    package: str, names: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__all__``, ``__getattr__`` and ``__dir__``.

    An eager ``__init__`` would bring torch, vLLM or a JVM with any module of the package.
    ``names``: by the module that defines them, separated by spaces. None may be that of a submodule, which
    would hide it once it is imported.
    """
    modules = {name: module for module, joined_names in names.items() for name in joined_names.split()}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def everything() -> list[str]:
        return sorted(modules)

    return sorted(modules), load, everything
