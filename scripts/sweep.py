"""Answer a dataset with many settings over one engine and print one table.

    corag sweep --config scripts/configs/decoding.yaml --cells scripts/configs/decoding_cells.yaml

A cell is a name and what it changes: options of 'corag run', as "corag.max_hops: 4" or nested. Cells share the engine, its
prefix cache and its memory of temperature-0 replies. Each has a run folder of its own, so the same command again goes on where
it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from core.errors import ConfigError
from core.options import changed, load_yaml
from eval.scorers import chosen_scorer
from scripts import run
from scripts.backends import open_backends
from scripts.methods import METHODS

SHARED = {"model", "retriever", "questions", "dataset", "split", "subset", "skip", "limit", "shard", "out"}


@dataclass(frozen=True)
class Config(run.Config):
    """Options of 'corag sweep': those of 'corag run', for what all cells have in common, and the cells.

    Attributes:
        cells: YAML file of cells, each a name and the options that it changes ("method" is one of them).
    """

    cells: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cells:
            raise ConfigError("no cells were given: name a YAML file with --cells.")
        if self.shard:
            raise ConfigError("a sweep is not sharded: shard its cells with corag run.")


def main(config: Config) -> int:
    """Answer every cell, print the table, return 0; 1 if every question of some cell failed."""
    cells = read_cells(config)
    questions = config.load()
    chosen = chosen_scorer(config.scorer, config.dataset)
    folders = asyncio.run(answer_cells(cells, questions))
    return run.report(folders, questions, chosen, config.recall_at)


async def answer_cells(cells: Mapping[str, run.Config], questions: run.Questions) -> dict[str, Path]:
    """Answer the cells one after the other, each with all its questions in flight, over the same back ends."""
    first = next(iter(cells.values()))
    methods = list(dict.fromkeys(name for cell in cells.values() for name in cell.method))
    for cell in cells.values():
        cell.of(cell.method[0]).check_files()
    folders = {}
    async with open_backends(replace(first, method=methods)) as (generator, retriever):
        for name, cell in cells.items():
            folders[name] = await run.answer_run(cell, cell.method[0], questions, generator, retriever, cell=name)
    return folders


def read_cells(config: Config) -> dict[str, run.Config]:
    """Return the configuration of each cell. Raises :class:`ConfigError` naming the cell and the option that is wrong."""
    data = load_yaml(config.cells, "cells")
    if not data or not isinstance(data, dict) or not all(isinstance(changes, dict) for changes in data.values()):
        raise ConfigError(
            f"'{config.cells}' must hold cells, each a name followed by the options that it changes, such as "
            "'tree: {method: corag, corag.strategy: tree}'."
        )
    base = run.Config(**{field.name: getattr(config, field.name) for field in fields(run.Config)})
    cells = {}
    for name, changes in data.items():
        if own := sorted(option for option in changes if option.split(".")[0] in SHARED):
            raise ConfigError(
                f"cell '{name}' of '{config.cells}' changes {own[0]}, which all cells share: give it to the sweep itself."
            )
        try:
            cells[str(name)] = changed(base, changes)
        except ConfigError as error:
            raise ConfigError(f"cell '{name}' of '{config.cells}': {error}") from None
        (method, *more) = cells[str(name)].method
        foreign = [option for option in changes if option.split(".")[0] in METHODS and option.split(".")[0] != method]
        if foreign:
            raise ConfigError(
                f"cell '{name}' of '{config.cells}' changes {foreign[0]}, but its method is {method}: give the cell "
                f"'method: {foreign[0].split('.')[0]}'."
            )
        if more:
            raise ConfigError(
                f"cell '{name}' of '{config.cells}' has the methods {', '.join(cells[str(name)].method)}: a cell has one."
            )
    return cells
