"""Write the embedded world: a fictional universe to retrieve from, ask about and train on, with no download.

corag world data/world --passages 2000 --test 200
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath
from eval.datasets.world.write import write_world


@dataclass(frozen=True)
class WorldOptions(Options):
    """Options of 'corag world'."""

    out: LocalPath = ""
    """the folder to write."""

    seed: int = 0
    """another seed, another world."""

    passages: int = 2000
    """size of the corpus, from 500 to 1,000,000."""

    train: int = 500
    """training questions."""

    dev: int = 100
    """questions for choosing settings."""

    test: int = 200
    """questions for reporting."""

    references: bool = False
    """pages end in "See also ..." with the things that they tell of, for methods that follow references; all
    else is the same."""

    def __post_init__(self) -> None:
        if not self.out:
            raise ConfigError("no folder was given: write corag world FOLDER.")


def main(config: WorldOptions) -> CommandResult:
    """Write the world and say how to go on."""
    sizes = {name: value for name, value in asdict(config).items() if name != "out"}
    manifest = write_world(Path(config.out), report=lambda line: print(line, file=sys.stderr), **sizes)
    print(f"Index it: corag index {config.out}/corpus.jsonl --out INDEX")
    return CommandResult(0, [asdict(manifest)])
