"""vLLM in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corag.core.protocols import Generator
from corag.generation.engine import Engine

if TYPE_CHECKING:
    from corag.generation.config import ModelConfig


async def _open(config: ModelConfig) -> Generator:
    from corag.generation.vllm_engine import VllmGenerator

    return VllmGenerator.open(config)


ENGINE = Engine("vllm", "vLLM in this process", _open, packages=("vllm",), spawns_processes=True)
