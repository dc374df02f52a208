"""One file per engine, each with an ``ENGINE``.

A new file here is a new choice of ``--model.backend``, whose name :mod:`corag.generation.config` lists. The
files are small and import torch, vLLM or httpx only when an engine is opened.
"""

from importlib import import_module
from pkgutil import iter_modules

from corag.generation.config import ModelConfig
from corag.generation.engine import Engine

# Sorted by module name: the order in which help and messages list them.
ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        import_module(f"{__name__}.{module.name}").ENGINE for module in iter_modules(__path__)
    )
}  # fmt: skip


def engine_of(config: ModelConfig) -> Engine:
    """Return the engine that a configuration's back end names; vLLM if that was left open."""
    return ENGINES[config.with_engine().backend]
