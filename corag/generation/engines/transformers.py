"""transformers in this process."""

from __future__ import annotations

from corag.core.lazy import importing
from corag.core.protocols import Generator
from corag.generation.config import ModelConfig
from corag.generation.engine import Engine
from corag.generation.transformers_engine import TransformersGenerator


async def _open(config: ModelConfig) -> Generator:
    return TransformersGenerator.open(config)


def _count_gpus(config: ModelConfig) -> int:
    if config.device not in ("auto", "cuda"):  # on a GPU that was chosen, or on none
        return 0
    with importing:
        import torch
    return int(torch.version.cuda is not None)


ENGINE = Engine(
    "transformers",
    "transformers in this process: slow, and what the others are tested against",
    _open,
    packages=("torch", "transformers"),
    count_gpus=_count_gpus,
)
