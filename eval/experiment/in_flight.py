"""How many questions are in flight: by the size of the engine that answers them."""

from __future__ import annotations

import re
from functools import cache

from corag.core.errors import ConfigError
from corag.core.runs.environment import gpu_names
from corag.generation.config import ModelConfig

DEFAULT_IN_FLIGHT = 64
"""Questions that keep an engine of 256 sequences busy: one of a CPU, or of a model of 8 billion weights."""

_SEQUENCES, _SEQUENCES_LARGE = 256, 1024
_LARGE_MIB = 70 * 1024


def questions_in_flight(batch_size: int, model: ModelConfig) -> int:
    """Return how many questions an engine gets at once.

    A quarter of the sequences that the engine works on at once, since a question often has several (chains,
    scores): 64 of 256, and 256 of the 1,024 that vLLM takes on cards of 70 GiB and more that are no A100.
    Several servers of vLLM (``backend`` "server") get 64 each.

    Args:
        batch_size: what the user says, 0 for nothing.
        model: which engine it is.

    Raises:
        ConfigError: for a number below 0.
    """
    if batch_size < 0:
        raise ConfigError(
            f"batch_size cannot be negative, but it is {batch_size}: 0 follows the engine's size."
        )
    if batch_size:
        return batch_size
    if model.backend == "server":
        return DEFAULT_IN_FLIGHT * len(model.urls)
    if model.backend != "vllm":
        return DEFAULT_IN_FLIGHT
    return max(DEFAULT_IN_FLIGHT, (model.max_num_seqs or sequences_of(tuple(_gpus()))) // 4)


def sequences_of(gpus: tuple[str, ...]) -> int:
    """Return the sequences at once that vLLM takes by itself, as its ``get_batch_defaults`` has it.

    ``gpus``: as ``gpu_names`` returns them, such as "NVIDIA H100 80GB HBM3, 81559 MiB". The smallest counts.

    >>> sequences_of(("NVIDIA H100 80GB HBM3, 81559 MiB",))
    1024
    """
    sizes = [re.search(r"(\d+) MiB", name) for name in gpus]
    large = [
        size is not None and int(size[1]) >= _LARGE_MIB and "a100" not in name.lower()
        for name, size in zip(gpus, sizes, strict=True)
    ]
    return _SEQUENCES_LARGE if large and all(large) else _SEQUENCES


@cache
def _gpus() -> list[str]:
    return gpu_names()
