"""The other packages of this distribution: that Python finds ours."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("ircot", "retrieval", "training", "eval")
"""The packages that are installed beside ``corag``."""


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
