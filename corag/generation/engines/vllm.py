"""vLLM in this process."""

from __future__ import annotations

from corag.core.errors import BackendError
from corag.core.protocols import Generator
from corag.generation.config import ModelConfig
from corag.generation.engine import Engine
from corag.generation.gpu_memory import count_gpus
from corag.generation.vllm_engine import VllmGenerator


async def _open(config: ModelConfig) -> Generator:
    generator = VllmGenerator.open(config)
    if config.deterministic:
        try:
            await generator.check_deterministic()
        except BackendError:
            await generator.close()
            raise
    return generator


ENGINE = Engine(
    "vllm",
    "vLLM in this process",
    _open,
    packages=("vllm",),
    spawns_processes=True,
    count_gpus=count_gpus,
)
