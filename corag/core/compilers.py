"""What machines with GPUs compile with: Triton and FlashInfer make kernels when an engine first starts."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path


def missing_compilers(include: str = "") -> list[str]:
    """Return a sentence for each thing that compiling kernels wants and that is not here.

    ``include``: the folder of Python's C headers; that of this Python if none is given.
    """
    sentences = []
    compiler_names = os.environ.get("CC", "").split()[:1]
    if not any(map(shutil.which, [*compiler_names, "gcc", "clang", "cc"])):
        sentences.append(
            "corag: there is no C compiler (gcc) here. vLLM's kernels for GPUs are compiled when an engine "
            "first starts: install gcc, or load the cluster's module of it, before corag is run."
        )
    folder = Path(include or sysconfig.get_paths()["include"])
    if not (folder / "Python.h").is_file():
        sentences.append(
            f"corag: Python's C headers (Python.h) are not in {folder}. Triton compiles with them: install "
            "python3-dev, or take a Python of uv's or conda's, which have them."
        )
    return sentences
