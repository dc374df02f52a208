"""An object or function of the user's own, in this process."""

from __future__ import annotations

from corag.core.errors import ConfigError
from corag.core.own_objects import find_user_object, identify
from corag.core.protocols import Generator
from corag.core.runs.provenance import settings_of
from corag.generation.config import ModelConfig
from corag.generation.engine import Engine
from corag.generation.function_model import own_model


async def _open(config: ModelConfig) -> Generator:
    # In its manifest a run would seem to be of an adapter, or of another chat template, that it never had.
    defaults = settings_of(ModelConfig())
    for name, value in settings_of(config).items():
        if value != defaults[name] and name not in ("backend", "name", "max_context", "remember"):
            raise ConfigError(
                f"model.{name} is '{value}', but '{config.name}' is a function or object of yours, which is "
                "not given it: set it there, and leave it out here."
            )
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
