"""The cells of a sweep: settings of 'corag run' by name, stated one by one or combined from grids."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from corag.core.errors import ConfigError
from corag.core.method import MethodConfig
from corag.core.options.classes import change_options, flatten, full_names
from corag.core.options.names import sections_of
from corag.core.options.yaml_files import load_yaml, parse_yaml, yaml_mistake
from corag.core.runs.provenance import Provenance, settings_of
from corag.core.seeds import stable_hash
from corag.core.types import Question
from eval.experiment.own_methods import short_name
from eval.experiment.questions import QuestionFile
from eval.experiment.registry import methods_of
from eval.experiment.run import RunConfig, repeats_of, run_path

# Options of a sweep that its cells have in common: what is asked, how it is scored, where it is kept. With
# other questions or another scorer, cells could not be compared.
SHARED_OPTIONS = {each.name for each in fields(QuestionFile)} | {
    "scorer", "recall_at", "out", "cells", "grid", "dev", "metric", "budgets", "resamples",
    "max_failed", "workers", "answers_to",
}  # fmt: skip
# Sections of what is opened: a plot's group tells of them, not the label of a point.
OPENED_SECTIONS = ("model", "retriever")
_NOT_IN_A_CELL = SHARED_OPTIONS | {"batch_size", "keep_prompts", "repeats"}
Kind = Literal["cell", "preset"]
"""What is read: the cells of a sweep, or the presets of a service, which are written alike."""
_OWNERS: Mapping[Kind, str] = {"cell": "sweep", "preset": "service"}
_MAX_VALUE_LENGTH = 40  # characters of a value in a cell's name, which is a folder's name too


@dataclass(frozen=True)
class Cell:
    """One setting with one method, and the questions that it answers.

    Attributes:
        name: what it is called in tables, and its run folder.
        config: its settings; ``out`` is the folder of its run folder.
        option_names: full names of the options that it was given.
        questions: what it answers.
        is_combined: whether a grid made it, and its name, of options; else somebody named it.
    """

    name: str
    config: RunConfig
    option_names: tuple[str, ...]
    questions: Sequence[Question] = ()
    is_combined: bool = False

    @property
    def method(self) -> str:
        """Its method."""
        return self.config.method[0]

    @property
    def options(self) -> MethodConfig:
        """The options of its method."""
        return self.config.of(self.method)

    @property
    def searches(self) -> bool:
        """Whether its method searches, as far as it is known."""
        return self.config.find_method(self.method).searches

    @property
    def needs_index(self) -> bool:
        """Whether its method cannot do without an index."""
        return self.config.find_method(self.method).needs_index

    @property
    def has_index(self) -> bool:
        """Whether there is an index or server to search."""
        return bool(self.config.retriever.index or self.config.retriever.url)

    @property
    def folder(self) -> Path:
        """Its run folder."""
        return run_path(self.config, self.method, {}, self.name)


Changes = Mapping[str, Any] | RunConfig
"""What a cell changes, or, where a program made it, all its options."""


def read_cells(
    base: RunConfig,
    cells: str | Mapping[str, Changes],
    grid: str | Sequence[Mapping[str, Any]],
    kind: Kind = "cell",
) -> list[Cell]:
    """Return the cells, without questions, in the order in which they are written, those of the grid last.

    ``cells``: a YAML file, or YAML in braces, of names and the options that each changes. ``grid``: a YAML
    file, or YAML in brackets or braces, of blocks of options, a cell for each combination of their values; a
    cell equal to an earlier one is left out. Either may be given as objects too. ``kind``: what messages call
    them. Raises :class:`ConfigError` naming the cell and the option that is wrong.
    """
    drafts = [*_listed_cells(cells, kind), *_grid_cells(grid, base.method[0])]
    if not drafts:
        raise ConfigError(
            "no cells were given: write them in the configuration, under cells or grid, or name a file with "
            "'cells'."
        )
    cells_read: list[Cell] = []
    names = {"dev": "dev"}  # by folder; that of the dev questions is taken
    for each, cell in ((draft, cell) for draft in drafts for cell in _repeats(_configure(base, draft))):
        if each.is_combined and any(cell.config == other.config for other in cells_read):
            continue
        folder = replace(cell, config=replace(cell.config, out=".")).folder.name
        if folder in names:
            raise ConfigError(
                f"{each.title} would share the folder '{folder}' with '{names[folder]}': call it otherwise."
            )
        names[folder] = cell.name
        cells_read.append(cell)
    return cells_read


class _Draft(NamedTuple):
    """A cell as it is written: where, its name, what it changes, and whether a grid combined it."""

    source: str
    name: str
    changes: Changes
    is_combined: bool
    kind: Kind = "cell"

    @property
    def title(self) -> str:
        """What to call it in messages."""
        where = "" if self.source == f"the {self.kind}s" else f" of {self.source}"
        return f"{self.kind} '{self.name}'{where}"


def _configure(base: RunConfig, each: _Draft) -> Cell:
    """Apply a cell's changes. Raises :class:`ConfigError` for what a cell may not change."""
    if isinstance(each.changes, RunConfig):
        (method,) = each.changes.method
        options = [f"{method}.{option.name}" for option in fields(each.changes.of(method))]
        return Cell(each.name, each.changes, ("method", *options))
    if shared_options := sorted(option for option in each.changes if option.split(".")[0] in SHARED_OPTIONS):
        raise ConfigError(
            f"{each.title} changes {shared_options[0]}, which all {each.kind}s share: give it to the "
            f"{_OWNERS[each.kind]} itself."
        )
    try:
        config = change_options(base, _without_adapter(base, each.changes))
    except ConfigError as error:
        raise ConfigError(f"{each.title}: {error}") from None
    method, *more = config.method
    if more:
        raise ConfigError(f"{each.title} has the methods {', '.join(config.method)}: a {each.kind} has one.")
    others = methods_of(type(config)).keys() - {method}
    if foreign := [option for option in each.changes if option.split(".")[0] in others]:
        raise ConfigError(
            f"{each.title} changes {foreign[0]}, but its method is {method}: give the {each.kind} 'method: "
            f"{foreign[0].split('.')[0]}'."
        )
    names = tuple(full_names(type(config), each.changes.items()))
    return Cell(each.name, config, names, is_combined=each.is_combined)


def _repeats(cell: Cell) -> list[Cell]:
    """Return a cell once for each seed that it is repeated with."""
    repeats = repeats_of(cell.config, cell.name)
    return [replace(cell, name=name, config=config) for name, config in repeats.items()]


def _without_adapter(base: RunConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes without the base's adapter where they name another model: it was made for the base's."""
    stated_values = full_names(base.extend(changes), changes.items())
    is_other = stated_values.get("model.name", base.model.name) != base.model.name
    return ({"model.adapter": ""} if is_other else {}) | dict(changes)


def _listed_cells(cells: str | Mapping[str, Changes], kind: Kind) -> Iterator[_Draft]:
    """Yield the cells that are written out one by one."""
    if not cells:
        return
    source, data = _load(cells, f"{kind}s")
    if (
        not data
        or not isinstance(data, Mapping)
        or not all(isinstance(changes, Mapping | RunConfig) for changes in data.values())
    ):
        raise ConfigError(
            f"{source} must hold {kind}s, each a name followed by the options that it changes, such as "
            "'tree: {method: corag, corag.strategy: tree}'."
        )
    for name, changes in data.items():
        yield _Draft(source, str(name), changes, False, kind)


def _grid_cells(grid: str | Sequence[Mapping[str, Any]], method: str) -> Iterator[_Draft]:
    """Yield a grid's cells, a block's last option changing fastest; ``method``: of blocks that name none."""
    if not grid:
        return
    source, data = _load(grid, "grid")
    blocks = data if isinstance(data, list | tuple) else [data]
    for block in blocks:
        if not block or not isinstance(block, dict):
            raise ConfigError(
                f"{source} must hold blocks of options, each with a value or a list of values, such as '- "
                "{method: corag, corag.strategy: best_of_n, corag.chains: [2, 4], corag.max_hops: [2, 4]}'."
            )
        config = RunConfig.extend({"method": method} | block)
        options = dict(flatten(block.items(), {prefix for prefix, _ in sections_of(config)}))
        choices = [
            value if isinstance(value, list | tuple | range) else [value] for value in options.values()
        ]
        if empty := [option for option, values in zip(options, choices, strict=True) if not values]:
            raise ConfigError(f"{source} has no value for {empty[0]}: give it one or more.")
        for values in itertools.product(*choices):
            changes = dict(zip(options, values, strict=True))
            yield _Draft(source, cell_name(method, changes), changes, True)


def cell_name(method: str, changes: Mapping[str, Any]) -> str:
    """Return the name of a cell of a grid, made of all that its block gives, whatever the others give.

    So a grid may grow without renaming, and answering again, what is there.

    >>> cell_name("ircot", {"method": "corag", "corag.strategy": "best_of_n", "corag.N": "4", "budget": "1"})
    'corag strategy=best_of_n N=4 budget=1'
    """
    method = short_name(str(changes.get("method", method)))
    parts = [
        f"{option.removeprefix(f'{method}.')}={short_value(value)}"
        for option, value in changes.items()
        if option != "method"
    ]
    return " ".join([method, *parts])


def short_value(value: Any) -> str:
    """Write an option's value as it stands in names, of a long one its end and a few digits."""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if len(text) <= _MAX_VALUE_LENGTH:
        return text
    # Of paths, which differ at their ends.
    ends = ",".join(Path(part).name for part in text.split(","))
    return f"{ends[-_MAX_VALUE_LENGTH:].lstrip(',')}~{stable_hash(text)[:4]}"


def _load(source: Any, option: str) -> tuple[str, Any]:
    """Return what to call an option's place in messages, and the YAML that it or its file holds.

    What a program gives as objects is taken as it is.
    """
    if not isinstance(source, str):
        return f"the {option}", source
    if source.lstrip()[:1] not in ("{", "[", "-"):
        return f"'{source}'", load_yaml(source, option)
    try:
        return f"the {option}", parse_yaml(source)
    except yaml.YAMLError as error:
        raise ConfigError(f"the {option} is not valid YAML{yaml_mistake(error)}.") from None


def varying(cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    """Return by name what tells the cells apart: of the options that each was given, those that differ.

    A method's options are compared between cells of that method, the retriever's between cells that search.
    """
    by_cell = {cell.name: dict(_options(cell.config)) for cell in cells}
    values: dict[str, set[str]] = {}
    for options in by_cell.values():
        for option, value in options.items():
            values.setdefault(option, set()).add(repr(value))  # a value may be a list, which has no hash
    differing = {option for option, distinct in values.items() if len(distinct) > 1}
    return {
        cell.name: {
            option: by_cell[cell.name][option]
            for option in ("method", *cell.option_names)
            if option in differing & by_cell[cell.name].keys()
        }
        for cell in cells
    }


def _options(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """Yield (full name, value) of the options that a cell's answers depend on."""
    method = config.method[0]
    left_out = _NOT_IN_A_CELL | (methods_of(type(config)).keys() - {method})
    if not config.find_method(method).searches:
        left_out |= {"retriever"}
    settings = settings_of(config)  # cells are compared with each other, option by option
    values = {name: value for name, value in settings.items() if name not in left_out}
    values["method"] = method
    yield from flatten(values.items(), {prefix for prefix, _ in sections_of(type(config))})


def common_provenance(base: RunConfig) -> Provenance:
    """Return the options of all cells, and the question file."""
    values = {name: value for name, value in settings_of(base).items() if name not in _NOT_IN_A_CELL}
    return Provenance(values | {"questions": base.source})
