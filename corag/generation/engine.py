"""What an engine is to the rest of the project: a name, how it is opened, and how it differs from others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from corag.core.installation import require
from corag.core.protocols import Generator
from corag.generation.config import ModelConfig


def _no_gpus(config: ModelConfig) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Engine:
    """A back end of ``--model.backend``; one file in :mod:`corag.generation.engines` each.

    Attributes:
        name: its name on the command line.
        summary: one line about it.
        open: returns a generator that is ready to work. Imports what is big by itself: the table of engines
            is read whenever options are.
        packages: the modules that must be installed for it.
        spawns_processes: opening it starts processes that import the caller's script again.
        count_gpus: returns how many GPUs one of it takes for itself; 0 where it computes elsewhere.
        loads_adapters: it loads an adapter from a folder, so that one that has just been trained can be used.
    """

    name: str
    summary: str
    open: Callable[[ModelConfig], Awaitable[Generator]]
    packages: tuple[str, ...] = ()
    spawns_processes: bool = False
    loads_adapters: bool = True
    count_gpus: Callable[[ModelConfig], int] = _no_gpus

    def check_installed(self) -> None:
        """Raise :class:`corag.core.errors.ConfigError` unless its packages are installed."""
        others = "choose another 'model.backend': transformers, or openai for a server"
        require(f"the back end '{self.name}'", *self.packages, otherwise=others)
