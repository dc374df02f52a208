"""Options of what is served: methods and presets, limits, and where answers are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from corag.core.errors import ConfigError
from corag.core.options import Options
from corag.core.runs.manifest import SERVED
from eval.experiment.backends import Setup
from eval.experiment.registry import with_method
from eval.experiment.run import RunConfig
from eval.sweeps.cells import Cell, read_cells

# A preset chooses how a question is answered. What answers it is opened once, for all of them.
_SHARED_BY_PRESETS = ("model", "retriever", "seed")


@dataclass(frozen=True)
class Limits(Options):
    """What one service takes on. Beyond it callers are told to come again, at once.

    Attributes:
        in_flight: questions that are answered at the same time.
        queue: questions that may wait for their turn; one more is refused with status 429.
        per_key: most questions of one API key that wait or are answered; 0 for no such limit.
        answer_s: most seconds that a question may take, waiting included.
        question_chars: longest question, in characters; of a longer one the end is read, which is told.
        conversation_chars: longest conversation before a question, in characters; of a longer one the latest
            turns are read, which is told.
        body_kb: longest body of a request, in units of 1,000 bytes.
        body_s: most seconds that a request's body may take to arrive.
        shutdown_s: seconds that questions have to end when the service is told to; then they are given up.
    """

    in_flight: int = 64
    queue: int = 128
    per_key: int = 16
    answer_s: float = 300.0
    question_chars: int = 4_000
    conversation_chars: int = 40_000
    body_kb: int = 10_000
    body_s: float = 20.0
    shutdown_s: float = 30.0

    def __post_init__(self) -> None:
        at_least = {"in_flight": 1, "queue": 0, "per_key": 0, "question_chars": 1, "conversation_chars": 1}
        for name, least in {**at_least, "body_kb": 1}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"limits.{name} must be at least {least}, but is {getattr(self, name)}.")
        if min(self.answer_s, self.body_s, self.shutdown_s) <= 0:
            raise ConfigError("limits.answer_s, body_s and shutdown_s are seconds above 0.")


@dataclass(frozen=True)
class Served(Setup):
    """Options of everything that serves answers.

    Attributes:
        presets: a YAML file, or YAML in braces, of names and the options that each changes, from cheap to
            dear; without, every method is a preset of its own.
        follow_ups: what was said before a question makes a self-contained question of it, by one call of the
            model; false answers the last turn by itself.
        out: folder of the run folders, one for each preset, index and options, to which every answer is
            appended; "" keeps none on disk.
        reload: "auto" takes over an index that is brought up to date in the folder that is searched, without
            a restart; "off" only says that it has changed, in the log, /readyz and /metrics.
        kept: finished answers that are kept in memory, for their links.
        log_questions: write questions into the log, too.
        strict: refuse fields of a request that have no meaning here, and conversations that are too long,
            instead of passing them over.
        page_jobs: what chat pages ask for by themselves (titles, tags, follow-up questions) is answered by
            one call of the model; false answers it as any question.
        page_job_patterns: further regular expressions; a last user message that one is in is such a job.
        about: which documents these are, in a sentence: agents and lists of models show it.
        sources: most sources that end the text of an answer, each with title, file and page, or a note that
            no passage was found; 0 for neither.
        reasoning: the field of a streamed message that has the steps; "both" for clients of either kind,
            "none" for those that show none.
        limits: what is taken on.
    """

    presets: str = ""
    follow_ups: bool = True
    out: str = ""
    reload: Literal["auto", "off"] = "auto"
    kept: int = 1_000
    log_questions: bool = False
    strict: bool = False
    page_jobs: bool = True
    page_job_patterns: list[str] = field(default_factory=list)
    about: str = ""
    sources: int = 0
    reasoning: Literal["reasoning_content", "reasoning", "both", "none"] = "reasoning_content"
    limits: Limits = field(default_factory=Limits)

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
        own = {each.name for each in fields(self)}
        shared = {each.name: getattr(self, each.name) for each in fields(kind) if each.name in own}
        return cast("RunConfig", kind(**{**shared, "questions": SERVED, "out": self.out or "auto"}))


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


def read_presets(options: Served) -> dict[str, Preset]:
    """Return the presets by name, in the order in which they stand in the options.

    Raises :class:`ConfigError` for one that cannot be, or changes what all of them share.
    """
    base = options.run_config
    source = options.presets or {name: {"method": name} for name in options.method}
    if isinstance(source, str) and "{" not in source and not Path(source).is_file():
        raise ConfigError(f"there is no file '{source}': --presets names one, or is YAML in braces.")
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
