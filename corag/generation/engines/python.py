"""An object or function of the user's own, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corag.core.errors import ConfigError
from corag.core.identity import chosen_options
from corag.core.protocols import Generator
from corag.generation.engine import Engine

if TYPE_CHECKING:
    from corag.generation.config import ModelConfig


async def _open(config: ModelConfig) -> Generator:
    from corag.core.own_objects import find_user_object
    from corag.generation.own_model import adapt_model

    for name, value in chosen_options(config).items():
        if name not in ("backend", "name", "max_context", "remember", "thinking"):
            raise ConfigError(
                f"model.{name} is '{value}', but '{config.name}' is a function or object of yours, which is "
                "told nothing of it: set it there, and leave it out here."
            )
    return adapt_model(
        find_user_object(config.name, "--model.name"),
        config.max_context,
        keeps_thoughts=config.thinking == "keep",
    )


def _count_gpus(config: ModelConfig) -> int:
    from corag.core.own_objects import find_user_object

    return int(getattr(find_user_object(config.name, "--model.name"), "gpus", 0))


ENGINE = Engine(
    "python",
    "a function or object of yours: FILE.py:NAME",
    _open,
    loads_adapters=False,
    count_gpus=_count_gpus,
)
