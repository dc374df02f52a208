"""Open the language model that a configuration asks for."""

from __future__ import annotations

from corag.core.protocols import Generator
from corag.generation.cached import REPLIES_KEPT, CachedGenerator
from corag.generation.config import ModelConfig
from corag.generation.engines import engine_of
from corag.generation.thinking_generator import with_thoughts_apart


async def open_generator(config: ModelConfig, capacity: int = REPLIES_KEPT) -> Generator:
    """Return a generator that is ready to work; close it when done.

    ``capacity``: most replies of a kind that it remembers.

    Raises :class:`corag.core.errors.ConfigError` if the model or its engine is not there,
    :class:`corag.core.errors.BackendError` if it does not start or a server cannot be reached.
    """
    engine = engine_of(config)
    engine.check_installed()
    generator = with_thoughts_apart(await engine.open(config), config.max_thinking_tokens)
    return CachedGenerator(generator, capacity) if config.remember else generator
