"""How many questions are in flight: by the size of the engine that answers them."""

from __future__ import annotations

import re
from functools import cache

from corag.core.runs.environment import gpu_names
from corag.generation.config import ModelConfig
from corag.generation.vllm_start import CPU_MAX_NUM_SEQS

DEFAULT_IN_FLIGHT = 64
"""Questions of one chain each that keep an engine busy: one of a CPU, or of a model of 8 billion weights."""

_FEWEST = 8  # of several chains: some wait for a search or for their last chain
_SEQUENCES, _SEQUENCES_LARGE = 256, 1024
_LARGE_MIB = 70 * 1024


def questions_in_flight(batch_size: int, model: ModelConfig, chains: int = 1) -> int:
    """Return how many questions an engine gets at once.

    Of one chain each a quarter of the sequences that the engine works on at once: 256 of the 1,024 that vLLM
    takes on cards of 70 GiB and more that are no A100, and never fewer than 64. Of several chains so many
    that their requests are that quarter, or up to 256 of the sequences: more would fill the cache, and push
    out each chain's own beginning before its next hop. That is 32 of 8 chains on a GPU, 8 on a CPU. Servers
    of vLLM (``backend`` "server") get as much each as a GPU of 256 sequences.

    Args:
        batch_size: what the user says, 0 for nothing.
        model: which engine it is.
        chains: how many of a question are with the engine at the same time.
    """
    if batch_size:
        return batch_size
    engines, sequences = 1, _SEQUENCES
    if model.backend == "server":
        engines = len(model.urls)
    elif model.backend == "vllm":
        gpus = tuple(_gpus())
        sequences = model.max_num_seqs or (sequences_of(gpus) if gpus else CPU_MAX_NUM_SEQS)
    busy = max(DEFAULT_IN_FLIGHT, sequences // 4)
    if chains > 1:
        requests = max(min(sequences, _SEQUENCES), sequences // 4)
        busy = min(busy, max(_FEWEST, requests // chains))
    return engines * busy


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
