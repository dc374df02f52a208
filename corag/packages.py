"""The other packages of this distribution: that Python finds ours, and which names they have."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages

PACKAGES = ("ircot", "retrieval", "training", "eval")
"""The packages that are installed beside ``corag``."""
WITH_NAMES = (
    "corag.core", "corag.core.prompting", "corag.core.runs", "corag.generation", "ircot", "retrieval",
    "eval.api", "eval.datasets", "eval.experiment", "eval.scoring", "eval.statistics", "eval.sweeps",
    "eval.tables", "eval.report", "training",
)  # fmt: skip
"""Packages with public names that are loaded late, so that looking into them costs nothing."""


def check_packages() -> None:
    """Refuse to start where a file or folder of the user's hides one of our packages.

    Raises ImportError: one sentence that names both files.
    """
    # A folder with a program of the user's comes first on sys.path, so their eval.py would be imported for
    # ours, and fail somewhere deep with "'eval' is not a package".
    ours = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        module = sys.modules.get(name)
        spec = module.__spec__ if module else find_spec(name)
        places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
        if module and not places:  # a script that is named as our package, run as such
            places = [module.__file__ or ""]
        if not any(Path(place).resolve() == ours / name for place in places):
            expected = ours / name / "__init__.py"
            if not places:
                raise ImportError(
                    f"corag needs its package {expected}, which is not there: install corag again."
                )
            raise ImportError(
                f"corag needs its package {expected}, but Python finds {places[0]} first: "
                "rename yours, or start Python in another folder."
            )


def suggest_import(name: str) -> str:
    """Return where a public name that :mod:`corag` itself does not have is imported from, "" if nowhere."""
    # "from corag import core" asks for an attribute before it imports the submodule.
    if name.startswith("_") or find_spec(f"corag.{name}") is not None:
        return ""
    for package in WITH_NAMES:
        if name in import_module(package).__all__:
            return f"write 'from {package} import {name}'"
    for parent in ("corag.chains", "corag.baselines"):
        for module in walk_packages(import_module(parent).__path__, f"{parent}."):
            value = getattr(import_module(module.name), name, None)
            if getattr(value, "__module__", None) == module.name:  # any object: constants have none
                return f"write 'from {module.name} import {name}'"
    return ""
