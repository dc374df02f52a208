"""An object or function of the user's own, in this process."""

from __future__ import annotations

from corag.core.own_objects import find_user_object, identify
from corag.core.protocols import Generator
from corag.generation.config import ModelConfig
from corag.generation.engine import Engine
from corag.generation.function_model import own_model


async def _open(config: ModelConfig) -> Generator:
    target, identity = find_user_object(config.name, "model.name"), identify(config.name)
    return own_model(target, identity.text if identity else "", config.max_context)


def _count_gpus(config: ModelConfig) -> int:
    return int(getattr(find_user_object(config.name, "model.name"), "gpus", 0))


ENGINE = Engine(
    "python",
    "a function or object of yours: FILE.py:NAME",
    _open,
    loads_adapters=False,
    count_gpus=_count_gpus,
)
