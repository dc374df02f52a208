"""Open the language model that a configuration asks for."""

from __future__ import annotations

from core.protocols import Generator
from generation.cached import REPLIES_KEPT, CachedGenerator
from generation.config import ModelConfig


async def open_generator(config: ModelConfig, capacity: int = REPLIES_KEPT) -> Generator:
    """Return a generator that is ready to work; close it when done.

    ``capacity``: most replies of a kind that it remembers.

    Raises :class:`core.errors.ConfigError` if the model or its engine is not there,
    :class:`core.errors.BackendError` if it does not start or a server cannot be reached.
    """
    generator = await _open(config)
    return CachedGenerator(generator, capacity) if config.remember else generator


async def _open(config: ModelConfig) -> Generator:
    if config.backend == "server":
        from generation.server import ServerGenerator

        return await ServerGenerator.open(config)
    if config.backend == "openai":
        from generation.openai_server import OpenAIGenerator

        return await OpenAIGenerator.open(config)
    if config.backend == "transformers":
        from generation.transformers_engine import TransformersGenerator

        return TransformersGenerator.open(config)
    from generation.vllm_engine import VllmGenerator

    return VllmGenerator.open(config)
