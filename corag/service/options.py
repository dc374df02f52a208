"""Options of what is served: methods and presets, limits, and where answers are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from corag.core.errors import ConfigError
from corag.core.option_names import LocalPath, NameOrPath
from corag.core.options import Options
from corag.core.runs.manifest import SERVICE_SOURCE
from eval.experiment.backends import Setup
from eval.experiment.registry import with_method
from eval.experiment.run import RunConfig
from eval.sweeps.cells import Cell, read_cells

# A preset chooses how a question is answered. What answers it is opened once, for all of them.
_SHARED_BY_PRESETS = ("model", "retriever", "seed")


@dataclass(frozen=True)
class Limits(Options):
    """What one service takes on. Beyond it callers are told to come again, at once."""

    in_flight: int = 64
    """questions answered concurrently."""

    queue: int = 128
    """queue length; when it is full, requests get HTTP 429."""

    per_key: int = 16
    """maximum queued and running questions per API key; 0 for no limit."""

    answer_s: float = 300.0
    """timeout of a question in seconds, queueing included."""

    question_chars: int = 4_000
    """maximum length of a question in characters; a longer one is cut at the front, and the reply says so."""

    conversation_chars: int = 40_000
    """maximum length of the earlier conversation in characters; of a longer one only the latest turns are
    used, and the reply says so."""

    body_kb: int = 10_000
    """maximum size of a request's body, in units of 1,000 bytes."""

    body_s: float = 20.0
    """timeout for receiving a request's body, in seconds."""

    shutdown_s: float = 30.0
    """grace period for running questions at shutdown, in seconds; then they are aborted."""

    def __post_init__(self) -> None:
        at_least = {"in_flight": 1, "queue": 0, "per_key": 0, "question_chars": 1, "conversation_chars": 1}
        for name, least in {**at_least, "body_kb": 1}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"limits.{name} must be at least {least}, but is {getattr(self, name)}.")
        if min(self.answer_s, self.body_s, self.shutdown_s) <= 0:
            raise ConfigError("limits.answer_s, body_s and shutdown_s are seconds above 0.")


@dataclass(frozen=True)
class ServiceOptions(Setup):
    """Options of everything that serves answers."""

    presets: NameOrPath = ""
    """a YAML file, or YAML in braces, that maps names to options, from cheap to expensive; unset: one preset
    per method."""

    follow_ups: bool = True
    """earlier turns are used to rewrite the last question as a standalone question (one model call); false
    uses the last turn only."""

    out: LocalPath = ""
    """folder of the run folders, one per preset, index and options, to which every answer is appended; ""
    stores none."""

    kept: int = 1_000
    """finished answers kept in memory, for their links."""

    log_questions: bool = False
    """include questions in the log."""

    strict: bool = False
    """reject request fields that have no effect here, and conversations that are too long, instead of
    ignoring or shortening them."""

    page_jobs: bool = True
    """internal requests of chat clients (titles, tags, follow-up questions) are answered by one model call;
    false treats them as questions."""

    page_job_patterns: list[str] = field(default_factory=list)
    """further regular expressions; a last user message that matches one is such a request."""

    about: str = ""
    """one sentence on which documents these are, shown to agents and in the list of models."""

    sources: int = 0
    """maximum number of sources (title, file, page) appended to an answer, or a note that no passage was
    found; 0 for neither."""

    reasoning: Literal["reasoning_content", "reasoning", "both", "none"] = "reasoning_content"
    """the field of streamed messages for the steps; "both" for clients of either kind, "none" for clients
    that show none."""

    limits: Limits = field(default_factory=Limits)
    """load limits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kept < 0:
            raise ConfigError(f"kept must be 0 or a number of answers, but is {self.kept}.")
        if self.sources < 0:
            raise ConfigError(f"sources must be 0 or a number of sources, but is {self.sources}.")
        for pattern in self.page_job_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(
                    f"page_job_patterns has '{pattern}', which is no regular expression ({error}): correct "
                    "it."
                ) from None

    @property
    def run_config(self) -> RunConfig:
        """The same options as a run has them: an answer that was served is a run's like any other."""
        kind: type[Any] = RunConfig
        for name in self.method:
            kind = with_method(kind, name, self.find_method(name))
        names = {each.name for each in fields(self)}
        shared = {each.name: getattr(self, each.name) for each in fields(kind) if each.name in names}
        return cast("RunConfig", kind(**{**shared, "questions": SERVICE_SOURCE, "out": self.out or "auto"}))


@dataclass(frozen=True)
class Preset:
    """One way to answer questions, under the name that callers know it by.

    Attributes:
        name: what callers write.
        config: its settings; its method is the only one.
    """

    name: str
    config: RunConfig

    @property
    def method(self) -> str:
        """Its method."""
        return self.config.method[0]

    @property
    def about(self) -> str:
        """What its method does, in a line."""
        return self.config.find_method(self.method).summary


def read_presets(options: ServiceOptions) -> dict[str, Preset]:
    """Return the presets by name, in the order in which they stand in the options.

    Raises :class:`ConfigError` for one that cannot be, or changes what all of them share.
    """
    base = options.run_config
    source = options.presets or {name: {"method": name} for name in options.method}
    if isinstance(source, str) and "{" not in source and not Path(source).is_file():
        raise ConfigError(f"there is no file '{source}': 'presets' names one, or is YAML in braces.")
    cells = read_cells(base, source, "", "preset")
    for cell in cells:
        _check(cell)
    return {cell.name: Preset(cell.name, cell.config) for cell in cells}


def _check(cell: Cell) -> None:
    for option in cell.option_names:
        if option.split(".")[0] in _SHARED_BY_PRESETS:
            raise ConfigError(
                f"preset '{cell.name}' changes {option}, which all presets share: give it to the service "
                "itself."
            )
        if option not in ("method", "budget") and not option.startswith(f"{cell.method}."):
            raise ConfigError(
                f"preset '{cell.name}' changes {option}, which means nothing here: a preset takes method, "
                f"budget and the options of its method, which begin with '{cell.method}.'."
            )
