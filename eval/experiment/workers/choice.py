"""The workers by default: an engine on each GPU that this process may use, else this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from corag.core.own_objects import is_object_name
from corag.core.system.installation import how_to_install, missing
from corag.core.system.machine import gpu_memory, visible_gpus
from corag.generation.config import ModelConfig
from corag.generation.engines import engine_of
from eval.experiment.backends import print_once
from eval.experiment.workers.config import WorkersConfig
from retrieval.config import RetrieverConfig


def choose_workers(
    workers: WorkersConfig, model: ModelConfig, retrievers: Sequence[RetrieverConfig], questions: int
) -> WorkersConfig:
    """Return the workers, with "auto" settled and the GPUs of each worker; print a line where it is by GPUs.

    Args:
        workers: as they were configured.
        model: what each opens.
        retrievers: what is searched.
        questions: how many there are: no more engines start than that.
    """
    gpus_per_engine = engine_of(model).count_gpus(model)
    if workers.kind == "none" or (workers.enabled and (workers.gpus_per_worker or not gpus_per_engine)):
        return workers
    if workers.enabled:
        # An engine that takes GPUs has them for itself, also by default: without, all would be on
        # the first.
        return replace(workers, gpus_per_worker=gpus_per_engine) if visible_gpus() else workers
    no_workers = replace(workers, kind="none")
    if not gpus_per_engine:
        return no_workers
    _leave_out_filled(gpus_per_engine)
    gpus = len(visible_gpus())
    engines = min(gpus // gpus_per_engine, questions)
    if engines < 2:
        return no_workers
    names = [model.name, *(name for each in retrievers for name in each.index)]
    if any("#" in name or name.startswith("__main__:") for name in names if is_object_name(name)):
        print_once(
            _unused_gpus_note(gpus, gpus_per_engine, "objects of this process cannot be opened in others")
        )
        return no_workers
    if missing(["ray"]):
        print_once(
            _unused_gpus_note(gpus, gpus_per_engine, f"for an engine on each, {how_to_install('ray')}")
        )
        return no_workers
    print_once(f"corag: {gpus} GPUs: {engines} engines on {gpus_per_engine} each; workers=none keeps one.")
    # Of this machine alone, whatever cluster there may be: that is asked for with --workers ray.
    return replace(workers, kind="ray", count=engines, gpus_per_worker=gpus_per_engine, address="local")


@cache  # what a later look finds may be this process's own engines, which are just ending
def _leave_out_filled(gpus_per_engine: int) -> None:
    """Hide GPUs that others fill from this process and its workers, and print which.

    All engines of a run are alike, so one full GPU would leave each a sliver of memory. Where too few are
    left for an engine, all stay.
    """
    gpus = visible_gpus()
    filled = [name for name, (free, total) in zip(gpus, gpu_memory(gpus), strict=False) if free < total / 2]
    if filled and len(gpus) - len(filled) >= gpus_per_engine:
        print_once(
            f"corag: GPU {', '.join(filled)} is left out: less than half of its memory is free. "
            "CUDA_VISIBLE_DEVICES says which GPUs may be used."
        )
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(name for name in gpus if name not in filled)


def without_workers(workers: WorkersConfig, model: ModelConfig) -> WorkersConfig:
    """Settle "auto" where a model is open in this process already, and say which GPUs that leaves unused."""
    if workers.kind != "auto":
        return workers
    gpus_per_engine = engine_of(model).count_gpus(model)
    if gpus_per_engine and (gpus := len(visible_gpus())) // gpus_per_engine > 1:
        why = "the model is open here. Give its options (ModelConfig) for an engine on each"
        print_once(_unused_gpus_note(gpus, gpus_per_engine, why))
    return replace(workers, kind="none")


def _unused_gpus_note(gpus: int, gpus_per_engine: int, why: str) -> str:
    return f"corag: {gpus_per_engine} of {gpus} GPUs is used: {why}."
