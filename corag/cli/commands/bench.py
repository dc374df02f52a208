"""Measure scoring, retrieval, links, feed, search, runner, decode, sweep, sample, sft, startup, scale...

corag bench scoring
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import corag.cli
from corag.cli.result import CommandResult
from corag.core.errors import ConfigError, nearest
from corag.core.option_names import LocalPath, NameOrPath
from corag.core.options import Options
from eval.experiment.opening import quiet

BENCHES = (
    "scoring", "retrieval", "runner", "decode", "sweep", "sample", "sft", "startup", "workers", "scale",
    "service", "feed", "search", "links",
)  # fmt: skip


@dataclass(frozen=True)
class BenchOptions(Options):
    """Options of 'corag bench'."""

    name: str = ""
    """scoring, retrieval, feed, search, links, runner, decode, sweep, sample, sft, startup, workers, scale or
    service."""

    adapter: NameOrPath = ""
    """folder of a LoRA adapter, or "default" for the shipped one, for decode, sweep and sample; "" for the
    model as it comes."""

    answers: int = 0
    """gold answers of each question at least, for sample; 0 leaves the one or two that they have."""

    passages: int = 0
    """of the corpus, for scale and links, 0 for a million; vectors for search, 0 for 100,000."""

    vectors: LocalPath = ""
    """a .npy file of unit vectors, [rows, dimension], for search; "" for random ones."""

    queries: LocalPath = ""
    """the same, what is searched for among ``vectors``; "" for some of these."""

    preset: Literal["paper", "small_model", "lean"] = "paper"
    """"paper" (five passages per hop) or "small_model" (three), for decode; "lean" compares tokens and EM of
    that preset with those of the paper's settings."""

    def __post_init__(self) -> None:
        if self.name not in BENCHES:
            raise ConfigError(f"there is no benchmark '{self.name}': {nearest(self.name, BENCHES)}")


def main(config: BenchOptions) -> CommandResult:
    """Run one benchmark and print its figures."""
    checkout = Path(corag.cli.__file__).parents[2]
    if not (checkout / "benchmarks").is_dir():
        raise ConfigError(
            "the benchmarks are not installed: run 'corag bench' from a clone of the repository."
        )
    if str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    module = importlib.import_module(f"benchmarks.{config.name}")
    default = asdict(BenchOptions(config.name))
    options = {name: value for name, value in asdict(config).items() if value != default[name]}
    if others := options.keys() - inspect.signature(module.main).parameters:
        raise ConfigError(f"benchmark '{config.name}' takes no {min(others)}: leave it out.")
    with quiet(f"measuring {config.name}"):
        figures: dict[str, float] = asyncio.run(module.main(**options))
    width = max(map(len, figures))
    for name, figure in figures.items():
        print(f"{name:<{width}}  {figure:,.4g}")
    return CommandResult(0, [{"bench": config.name, **options, **figures}])
