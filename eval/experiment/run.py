"""Answering a dataset with some methods, each into a run folder of its own, which the same call resumes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from corag.core.options.names import LocalPath, Mark
from corag.core.options.shared_values import names_on_hub
from corag.core.own_objects import identify
from corag.core.runner import RunTurn
from corag.core.runs.environment import environment
from corag.core.runs.folder import ANOTHER_OUT, GO_ON_OR_OVERWRITE, RunFolder
from corag.core.runs.provenance import Provenance, settings_of
from corag.core.runs.shards import Shard
from corag.core.system.files import file_digest, read_anew
from corag.core.system.folder_lock import refuse_if_locked
from corag.core.types import Question
from corag.generation.trained_for import trained_for
from eval.datasets.answers import check_answers_file
from eval.datasets.corpora import describe_corpora
from eval.experiment.backends import (
    OPENED_ALIASES,
    Setup,
    check_model,
    check_setup,
    print_once,
)
from eval.experiment.executor import AnswerTask, Executor, HasFingerprint, RemoteHandle
from eval.experiment.gold import lies_here, match_gold
from eval.experiment.in_flight import questions_in_flight
from eval.experiment.loop import answer_into, in_turn
from eval.experiment.open_executor import open_executor
from eval.experiment.opening import prepare_output
from eval.experiment.questions import QuestionFile, question_notes
from eval.experiment.registry import bind
from eval.experiment.workers.config import WORKERS_ALIASES, WorkersConfig
from retrieval.search.stage import SearchStage


@dataclass(frozen=True)
class RunConfig(Setup, QuestionFile):
    """Options of 'corag run'."""

    ALIASES: ClassVar[dict[str, str]] = OPENED_ALIASES | WORKERS_ALIASES

    scorer: str = "auto"
    """scoring rule for answers; "auto" uses the dataset's own."""

    recall_at: Annotated[int, Ge(1)] = 15
    """k of recall@k over the collected passages."""

    repeats: Annotated[int, Ge(1)] = 1
    """answer all questions this many times, with the seeds seed, seed + 1 and so on, each time into a run
    folder of its own; the table then has the mean over these runs."""

    batch_size: Annotated[int, Ge(0)] = 0
    """questions in flight, per worker; 0 chooses by engine and method: 64, or 256 with vLLM on a large GPU,
    and fewer where a question has several chains."""

    out: LocalPath = "auto"
    """folder of the runs; "auto" is runs/NAME-OF-QUESTIONS with one folder per method and settings."""

    answers_to: LocalPath = ""
    """also write the answers to this file, .jsonl or .csv: id, question, answer, sources, tokens, stopped. Of
    shards 'corag table --join' writes it."""

    keep_prompts: bool = False
    """store every prompt in the traces."""

    leave_out_self: bool = False
    """exclude the passage with the question's own id from its results, for datasets whose queries are
    documents of the corpus, such as BEIR's ArguAna and Quora."""

    max_failed: Annotated[int, Ge(0)] = 0
    """number of questions that may fail before the exit status is 1."""

    overwrite: Annotated[bool, Mark.ENVIRONMENT] = False
    """delete runs with other settings in ``out`` instead of refusing; also for your own function or object
    without ``fingerprint``."""

    workers: WorkersConfig = field(default_factory=WorkersConfig)
    """which processes answer the questions."""

    def __post_init__(self) -> None:
        Setup.__post_init__(self)
        QuestionFile.__post_init__(self)
        object.__setattr__(self, "corag", self.with_task(self.corag))
        if self.answers_to:
            check_answers_file(self.answers_to)

    def in_flight(self, name: str) -> int:
        """Return how many questions of a method each engine has at once."""
        return questions_in_flight(self.batch_size, self.model, self.of(name).chains_at_once)

    @property
    def most_in_flight(self) -> int:
        """The most that any of the methods has."""
        return max(map(self.in_flight, self.method))

    @property
    def folder(self) -> Path:
        """The folder of the run folders."""
        if self.out != "auto":
            return Path(self.out)
        return Path("runs") / Path(self.questions).name.split(".")[0]


async def answer_dataset(
    config: RunConfig, questions: Sequence[Question], *, alone: bool = False
) -> dict[str, Path]:
    """Answer every question with every method, and return the run folder of each method and repetition.

    What a folder holds already is not answered again. Failed questions are. ``alone``: no run begins before
    the one before has ended.
    """
    read_anew()
    check_setup(config)
    runs = {title: (name, each) for name in config.method for title, each in repeats_of(config, name).items()}
    for title, (name, each) in runs.items():
        if each.out != "auto":
            refuse_if_locked(run_path(each, name, {}, title), advice=ANOTHER_OUT)
    prepare_output(config.folder)
    folders_searched = config.retriever.index if config.searches else []
    if is_here := lies_here(folders_searched):  # a gold passage with the name of several files is refused
        questions = await match_gold(questions, None, folders_searched)
    async with open_executor(config, config.workers, config.most_in_flight, len(questions)) as executor:
        for name in config.method:
            check_model(name, config.of(name), config.model, executor.model)
        if not is_here:
            questions = await match_gold(questions, executor.index, folders_searched)
        # In turn: what is interrupted has mostly finished the first methods.
        starts = [
            partial(answer_with, each, name, questions, executor, cell=title)
            for title, (name, each) in runs.items()
        ]
        folders = await in_turn(starts, alone=alone)
        return dict(zip(runs, folders, strict=True))


def repeats_of(config: RunConfig, title: str) -> dict[str, RunConfig]:
    """Return a run's options for each of its seeds, by what the run is then called: first as it is.

    So a run that was made once is the first of those of a later ``repeats``.
    """
    seeds = range(config.seed, config.seed + config.repeats)
    return {
        title if seed == config.seed else f"{title} seed={seed}": replace(config, seed=seed) for seed in seeds
    }


async def answer_with(
    config: RunConfig,
    name: str,
    questions: Sequence[Question],
    executor: Executor,
    turn: RunTurn | None = None,
    *,
    cell: str = "",
) -> Path:
    """Answer with one method what its run does not hold yet, and return the run's folder.

    Args:
        config: the run's options.
        name: the method's.
        questions: all of the run's.
        executor: runs the method, with a model and an index that are open.
        turn: of this run among those that share the executor's engine.
        cell: the run's name in a sweep, or among the runs of a call from Python.

    Raises:
        ConfigError: if the folder holds a run of other settings.
    """
    task = AnswerTask(
        bind(name, config),
        config.seed,
        config.budget,
        config.keep_prompts,
        config.leave_out_self,
    )
    # A folder cannot say a name of several words.
    notes = {**executor.manifest_entry(), **question_notes(questions), "name": cell if " " in cell else ""}
    with open_run(config, name, executor.model, executor.index, cell=cell, notes=notes) as run:
        await answer_into(
            run,
            questions,
            task,
            executor,
            title=cell or name,
            batch_size=config.in_flight(name),
            shard=config.shard,
            turn=turn,
        )
    return run.path


def open_run(
    config: RunConfig,
    name: str,
    model: HasFingerprint,
    index: HasFingerprint | None,
    *,
    cell: str = "",
    notes: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Create or resume the run folder of a method, to be used as a context manager.

    ``notes``: what else to record of this start. Raises :class:`ConfigError` for a run of other settings.
    """
    settings = run_settings(config, name, model, index)
    environment = run_environment(config, settings, index) | dict(notes or {})
    path = run_path(config, name, settings, cell)
    if own_objects := _own_objects(config, name):
        environment["own_objects"] = own_objects
    unsure = [each for each, how in own_objects.items() if how != "fingerprint" and each != name]
    anew = not is_told_apart(config, name)
    run = RunFolder(
        path, settings, environment, overwrite=config.overwrite, anew=anew, advice=GO_ON_OR_OVERWRITE
    )
    if run.answered_ids and unsure:
        print_once(
            f"corag: '{path}' goes on with {' and '.join(unsure)}, known by source text alone: if anything "
            "else has changed, answer anew with overwrite=true. A `fingerprint`, a text, says which "
            "version it is."
        )
    return run


def is_told_apart(config: RunConfig, name: str) -> bool:
    """Whether equal settings of a method's run mean equal answers: not of what may change unnoticed."""
    return set(_own_objects(config, name).values()) <= {"fingerprint"}


def _own_objects(config: RunConfig, name: str) -> dict[str, str]:
    """Return by what each of the user's objects that a method is or asks is known: fingerprint, source text.

    The code of one without a fingerprint is not checked beyond its source text.
    """
    method, names = config.find_method(name), [config.model.name] * (config.model.backend == "python")
    names += config.retriever.index if method.searches else []
    identities = {each.removeprefix("__main__:").partition("#")[0]: identify(each) for each in names}
    known_by = {each: identity.known_by for each, identity in identities.items() if identity}
    return known_by | ({name: "source text"} if method.code else {})


def run_environment(
    config: RunConfig, settings: Mapping[str, Any], index: HasFingerprint | None
) -> dict[str, Any]:
    """Return what a run's start records beside its settings: nothing of it changes a result."""
    return environment() | {
        "model": asdict(config.model),
        "trained_for": trained_for(config.model.adapter, config.model.name),
        "retriever": asdict(config.retriever),
        "from_hub": names_on_hub(config.model, config.retriever),
        "batch_size": config.in_flight(settings["method"]),
        "questions": config.questions,
        "scorer": config.scorer,
        "recall_at": config.recall_at,
        "shard": config.shard,
        "corpus": describe_corpora(config.retriever.index) if settings["retriever"] else "",
        "has_parts": isinstance(index, SearchStage | RemoteHandle) and index.has_parts,
        "aliases": file_digest(config.aliases),
    }


def run_settings(
    config: RunConfig, name: str, generator: HasFingerprint, retriever: HasFingerprint | None
) -> dict[str, Any]:
    """Return everything that the method's results depend on: a folder that holds others is refused.

    ``limit``, ``shard`` and ``batch_size`` are not among it: a run may grow, and be made in parts.
    """
    return method_settings(config, name) | {
        "model": generator.fingerprint,
        "retriever": retriever.fingerprint
        if retriever is not None and config.find_method(name).searches
        else "",
    }


def method_settings(config: RunConfig, name: str) -> dict[str, Any]:
    """Return what the method's results depend on besides model and index, before either is opened."""
    options, entry = config.of(name), config.find_method(name)
    # Only for methods of the user's own: ours are identified by their options and prompts.
    extra: dict[str, Any] = {"code": entry.code} if entry.code else {}
    if config.leave_out_self:
        extra["leave_out_self"] = True
    return extra | {
        "method": name,
        "options": settings_of(options),
        "prompts": [template.identity for template in options.templates()],
        "demonstrations": {option: file_digest(file) for option, file in options.files().items()},
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
        run = config.folder / f"{name}-{Provenance(settings).digest}"
    return Shard.parse(config.shard).folder(run) if config.shard else run
