"""Answering a dataset with some methods, each into a run folder of its own, which the same call resumes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from core.errors import ConfigError
from core.files import file_digest
from core.options import identity_of
from core.protocols import Generator, Retriever
from core.runs.environment import environment
from core.runs.failures import check_max_failed
from core.runs.folder import RunFolder, read_attempts, writable_folder
from core.runs.shards import Shard, note_questions
from core.seeds import stable_hash
from core.types import Question
from eval.experiment.backends import OPENED_ALIASES, Setup, require_abilities
from eval.experiment.crews import open_crew, refuse_sharing
from eval.experiment.opening import ENGINE_LOG, log_to
from eval.experiment.progress import answer_waiting
from eval.experiment.questions import QuestionFile
from eval.experiment.registry import bind
from eval.tables.conditions import corpus_of
from eval.workers.config import WORKERS_ALIASES, WorkersConfig
from eval.workers.work import Answering, Described, ThisProcess, Workforce


@dataclass(frozen=True)
class RunConfig(Setup, QuestionFile):
    """Options of 'corag run'.

    Attributes:
        scorer: how answers are scored; "auto" takes the dataset's own.
        recall_at: recall is measured over so many collected passages.
        batch_size: questions in flight at the same time, with each worker if there are several.
        out: folder of the runs; "auto" is runs/NAME-OF-QUESTIONS with one folder per method and settings.
        keep_prompts: store every prompt in the traces.
        max_failed: questions that may fail; if more do, the exit status is 1.
        workers: who answers: this process, or others.
    """

    ALIASES: ClassVar[dict[str, str]] = OPENED_ALIASES | WORKERS_ALIASES

    scorer: str = "auto"
    recall_at: int = 15
    batch_size: int = 64
    out: str = "auto"
    keep_prompts: bool = False
    max_failed: int = 0
    workers: WorkersConfig = field(default_factory=WorkersConfig)

    def __post_init__(self) -> None:
        check_max_failed(self.max_failed)
        Setup.__post_init__(self)
        QuestionFile.__post_init__(self)
        if self.batch_size < 1 or self.recall_at < 1:
            raise ConfigError(
                f"batch_size and recall_at must be at least 1, but they are {self.batch_size} and "
                f"{self.recall_at}."
            )

    @property
    def folder(self) -> Path:
        """The folder of the run folders."""
        if self.out != "auto":
            return Path(self.out)
        return Path("runs") / Path(self.questions).name.split(".")[0]


async def answer_dataset(config: RunConfig, questions: Sequence[Question]) -> dict[str, Path]:
    """Answer every question with every method, and return the run folder of each method.

    What a folder holds already is not answered again. Failed questions are.
    """
    writable_folder(config.folder)
    log_to(config.folder / ENGINE_LOG)
    async with open_crew(config, config.workers, config.batch_size) as crew:
        # One after another: what is interrupted has then finished the first methods.
        return {name: await answer_with(config, name, questions, crew) for name in config.method}


async def answer_run(
    config: RunConfig,
    name: str,
    questions: Sequence[Question],
    generator: Generator,
    retriever: Retriever | None,
    *,
    cell: str = "",
) -> Path:
    """Do what :func:`answer_with` does, with a model and an index that are open in this process."""
    return await answer_with(config, name, questions, ThisProcess(generator, retriever), cell=cell)


async def answer_with(
    config: RunConfig, name: str, questions: Sequence[Question], crew: Workforce, *, cell: str = ""
) -> Path:
    """Answer with one method what its run does not hold yet, and return the run's folder.

    ``cell``: its name in a sweep. Raises :class:`ConfigError` if the folder holds a run of other settings.
    """
    options = config.of(name)
    require_abilities(name, options.needs(), crew.model)
    if crew.shares_nothing:
        refuse_sharing(name, options)
    settings = run_settings(config, name, crew.model, crew.index)
    folder = run_path(config, name, settings, cell)
    noted = run_environment(config, settings) | dict(crew.noted())
    with RunFolder(folder, settings, noted) as run:
        if config.shard:
            note_questions(folder, [question.id for question in questions])
        shared = options.shared_state(read_attempts(folder))
        work = Answering(bind(name, config), config.seed, config.budget, config.keep_prompts, shared)
        in_flight = crew.in_flight(config.batch_size)
        await answer_waiting(
            run, questions, crew.doing(work), cell or name, in_flight=in_flight, more=crew.said
        )
    return folder


def run_environment(config: RunConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run's start notes beside its settings: nothing of it changes a result."""
    return environment() | {
        "model": asdict(config.model),
        "retriever": asdict(config.retriever),
        "batch_size": config.batch_size,
        "questions": config.questions,
        "scorer": config.scorer,
        "recall_at": config.recall_at,
        "shard": config.shard,
        "corpus": corpus_of(config.retriever.index) if settings["retriever"] else "",
        "aliases": file_digest(config.aliases),
    }


def run_settings(
    config: RunConfig, name: str, generator: Described, retriever: Described | None
) -> dict[str, Any]:
    """Return everything that the method's results depend on: a folder that holds others is refused.

    ``limit``, ``shard`` and ``batch_size`` are not among it: a run may grow, and be made in parts.
    """
    return method_settings(config, name) | {
        "model": generator.fingerprint,
        "retriever": retriever.fingerprint if retriever is not None and config.entry(name).searches else "",
    }


def method_settings(config: RunConfig, name: str) -> dict[str, Any]:
    """Return what the method's results depend on besides model and index, before either is opened."""
    options, entry = config.of(name), config.entry(name)
    # Only for methods of the user's own: the house's are told apart by their options and prompts.
    own = {"code": entry.code} if entry.code else {}
    return own | {
        "method": name,
        "options": identity_of(options),
        "prompts": [template.identity for template in options.templates()],
        "demonstrations": {given: file_digest(file) for given, file in options.files().items()},
        "questions": config.source,
        "seed": config.seed,
        "budget": config.budget,
    }


def folder_name(cell: str) -> str:
    """Return what a named run's folder is called: every sign that a shell may take for its own is a dash."""
    return re.sub(r"[^\w.=-]+", "-", cell)


def run_path(config: RunConfig, name: str, settings: Mapping[str, Any], cell: str = "") -> Path:
    """Return the folder of a method's run, or of its shard.

    The automatic name changes with the settings, so it is never refused.
    """
    if config.out != "auto":
        run = config.folder / (folder_name(cell) or name)
    else:
        digest = stable_hash(json.dumps(settings, sort_keys=True, default=str))[:8]
        run = config.folder / f"{name}-{digest}"
    return Shard.parse(config.shard).folder(run) if config.shard else run
