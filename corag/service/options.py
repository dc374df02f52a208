"""Options of what is served: methods and presets, limits, and where answers are kept."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, cast

from annotated_types import Ge, Gt, Le

from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath, Mark, NameOrPath
from corag.core.runs.manifest import SERVICE_SOURCE
from eval.experiment.prompts import AskSetup
from eval.experiment.registry import with_method
from eval.experiment.run import RunConfig
from eval.sweeps.cells import Cell, read_cells


@dataclass(frozen=True)
class Limits(Options, section="limits"):
    """What one service takes on. Beyond it a request is refused at once, with the time to try again."""

    in_flight: Annotated[int, Ge(1)] = 64
    """questions answered concurrently."""

    queue: Annotated[int, Ge(0)] = 128
    """queue length; when it is full, requests get HTTP 429."""

    per_key: Annotated[int, Ge(0)] = 16
    """maximum queued and running questions per API key; 0 for no limit."""

    answer_s: Annotated[float, Gt(0)] = 300.0
    """timeout of a question in seconds, queueing included."""

    question_chars: Annotated[int, Ge(1)] = 4_000
    """maximum length of a question in characters; a longer one is cut at the front, and the reply says so."""

    body_kb: Annotated[int, Ge(1)] = 10_000
    """maximum size of a request's body, in units of 1,000 bytes."""

    shutdown_s: Annotated[float, Gt(0)] = 30.0
    """grace period for running questions at shutdown, in seconds; then they are aborted."""


@dataclass(frozen=True)
class AnswersOptions(AskSetup):
    """Options of 'corag serve answers'."""

    presets: NameOrPath = ""
    """a YAML file, or YAML in braces, that maps names to options, from cheap to expensive; unset: one preset
    per method."""

    follow_ups: bool = True
    """earlier turns are used to rewrite the last question as a standalone question (one model call); false
    uses the last turn only."""

    out: LocalPath = ""
    """folder of the run folders, one per preset, index and options, to which every answer is appended; ""
    stores none."""

    keep_days: Annotated[int, Ge(0)] = 0
    """delete the answers in ``out`` after so many days; each day then has run folders of its own. 0 keeps
    all."""

    log_questions: bool = False
    """include questions in the log."""

    about: str = ""
    """one sentence on which documents these are, shown to agents and in the list of models."""

    sources: Annotated[int, Ge(0)] = 0
    """maximum number of sources (title, file, page) appended to an answer; 0 for none."""

    limits: Limits = field(default_factory=Limits)
    """load limits."""

    host: Annotated[str, Mark.PRIVATE] = "127.0.0.1"
    """the address to listen on; 0.0.0.0 lets other machines in."""

    port: Annotated[int, Ge(0), Le(65535)] = 8110
    """the port to listen on; 0 takes a free one."""

    api_key_file: LocalPath = ""
    """a file with a line 'NAME KEY' per API key; "" allows access without a key."""

    hosts: Annotated[list[str], Mark.PRIVATE] = field(default_factory=list)
    """further host names of the service, such as that of a proxy."""

    stdio: bool = False
    """serve MCP to the one agent that starts this command, over standard input and output, and no port."""

    check: bool = False
    """open everything, list what would be served, and exit."""

    @property
    def run_config(self) -> RunConfig:
        """The same options as a run has them: an answer that was served is a run's like any other."""
        kind: type[Any] = RunConfig
        for name in self.method:
            kind = with_method(kind, name, self.find_method(name))
        names = {each.name for each in fields(self)}
        shared = {each.name: getattr(self, each.name) for each in fields(kind) if each.name in names}
        return cast("RunConfig", kind(**{**shared, "questions": SERVICE_SOURCE, "out": self.out or "auto"}))


def read_presets(options: AnswersOptions) -> dict[str, Cell]:
    """Return the presets by name, in the order in which they stand in the options.

    Raises :class:`ConfigError` for one that cannot be, or changes what all of them share.
    """
    source = options.presets or {name: {"method": name} for name in options.method}
    cells = read_cells(options.run_config, source, "", "preset")
    for cell in cells:
        _check(cell)
    return {cell.name: replace(cell, config=_with_prompts(cell, options)) for cell in cells}


def _with_prompts(preset: Cell, options: AnswersOptions) -> RunConfig:
    changes: dict[str, Any] = {preset.method: options.with_prompts(preset.options)}
    return replace(preset.config, **changes)


def _check(cell: Cell) -> None:
    for option in cell.option_names:
        if option not in ("method", "budget") and not option.startswith(f"{cell.method}."):
            raise ConfigError(
                f"preset '{cell.name}' changes {option}, but a preset has a method, a budget and options of "
                f"its method, such as '{cell.method}.NAME': the rest is the service's."
            )
