"""Measure scoring, retrieval, runner, decode, sample, sft or startup: a short table, then one line of JSON.

corag bench scoring
"""

from __future__ import annotations

import asyncio
import importlib
import json
from dataclasses import dataclass

from core.errors import ConfigError, nearest

BENCHES = ("scoring", "retrieval", "runner", "decode", "sample", "sft", "startup")


@dataclass(frozen=True)
class Config:
    """Options of 'corag bench'.

    Attributes:
        name: scoring, retrieval, runner, decode, sample, sft or startup.
    """

    name: str = ""

    def __post_init__(self) -> None:
        if self.name not in BENCHES:
            raise ConfigError(f"there is no benchmark '{self.name}': {nearest(self.name, BENCHES)}")


def main(config: Config) -> int:
    """Run one benchmark and print its figures."""
    module = importlib.import_module(f"scripts.bench.{config.name}")
    figures: dict[str, float] = asyncio.run(module.main())
    width = max(map(len, figures))
    for name, figure in figures.items():
        print(f"{name:<{width}}  {figure:,.4g}")
    print(json.dumps({"bench": config.name, **figures}))
    return 0
