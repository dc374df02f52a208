"""CoRAG's training from questions to adapters, in turns (a warm start, rounds) of four stages each.

The stages are sampling, rows, fine-tuning and decoding. Each is a command of its own, in a process of its
own (``stages.py``), passed over once it has finished. One whose options have changed, or anything that it
reads, is refused until its folder is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from corag.chains.config import CoRAGConfig
from corag.core.errors import ConfigError
from corag.core.options.names import LocalPath, NameOrPath
from corag.core.runs.provenance import Provenance
from corag.core.system.files import write_atomically
from corag.core.system.folder_lock import lock_folder
from corag.core.system.installation import require
from corag.core.types import Question
from corag.generation.config import ModelConfig
from corag.generation.engines import engine_of
from corag.generation.models import model_folder
from eval.datasets.same import in_common
from eval.experiment.backends import OPENED_ALIASES, require_index
from eval.experiment.questions import FurtherQuestions, QuestionFile
from eval.experiment.run import RunConfig
from eval.experiment.workers.config import WORKERS_ALIASES, WorkersConfig
from retrieval.config import RetrieverConfig
from training.config import SftConfig, TuningOptions
from training.data import RowsConfig
from training.row_tasks import ROW_TASKS
from training.rows import MakeRowsConfig
from training.sample import SampleRunConfig
from training.sampling import SampleConfig
from training.stages import LaunchOptions, Stage, run_stage, stage_command


@dataclass(frozen=True)
class HeldOut(FurtherQuestions):
    """The option ``test``: what every round is decoded on; without questions nothing is decoded."""

    recall_at: int = 15
    """recall is measured over so many collected passages."""


@dataclass(frozen=True)
class RoundsConfig(LaunchOptions, QuestionFile):
    """Options of 'corag rounds'."""

    out: LocalPath = ""
    """folder of everything that is made."""

    rounds: Annotated[int, Ge(0)] = 1
    """rounds of sampling and training; 0 with a warm start for the warm start alone."""

    warm_start: Annotated[int, Ge(0)] = 0
    """first train on the annotated decompositions of this many questions, which are then excluded from
    sampling. A model too small to write sub-queries learns their form from them. 0 for none."""

    per_round: Annotated[int, Ge(0)] = 0
    """questions per round, different ones each round; 0 for all of them in every round, as in the paper."""

    start_from: Literal["base", "previous"] = "base"
    """a round trains a new adapter on the "base" model, or continues the "previous" one."""

    learning_rate_share: Annotated[float, Gt(0)] = 1.0
    """learning rate when training continues an adapter, as a share of sft's."""

    sample: SampleConfig = field(default_factory=SampleConfig)
    """how chains are sampled; the source is the model but for the warm start."""

    rows: RowsConfig = field(default_factory=RowsConfig)
    """which training rows are made."""

    sft: TuningOptions = field(default_factory=TuningOptions)
    """how the model is trained."""

    corag: CoRAGConfig = field(default_factory=CoRAGConfig)
    """prompts, passages and limits of sampling and decoding; strategy and stop rule of decoding."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """the model that samples."""

    learner: NameOrPath = ""
    """the model to train, if it differs from the sampling model."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """the index of the training questions."""

    test: HeldOut = field(default_factory=HeldOut)
    """what every round is decoded on."""

    seed: int = 0
    """seed of sampling and decoding."""

    batch_size: Annotated[int, Ge(0)] = 0
    """questions in flight at the same time; 0 for as many as the engine's size wants."""

    max_failed: Annotated[int, Ge(0)] = 0
    """questions of a stage that may fail; if more do, the same command asks them again, before it trains on
    the others."""

    workers: WorkersConfig = field(default_factory=WorkersConfig)
    """who samples and answers: by default one engine per GPU."""

    ALIASES: ClassVar[dict[str, str]] = OPENED_ALIASES | WORKERS_ALIASES | {"may_fail": "max_failed"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.out:
            raise ConfigError("no folder was given: write corag rounds --out FOLDER.")
        require_index(self.retriever)
        if not (self.rounds or self.warm_start):
            raise ConfigError("neither rounds nor a warm_start are asked for: give one of them.")
        for wrong, instead in self._conflicts():
            if wrong:
                raise ConfigError(f"{instead}.")

    def _conflicts(self) -> Iterator[tuple[bool, str]]:
        """Yield what cannot be, and what to do instead, before hours go into the first stage."""
        tasks, longest = self.rows.tasks, self.sft.max_length
        yield (
            bool(self.shard),
            "rounds are not sharded: use 'corag sample --shard', and give all folders to 'corag rows'",
        )
        yield (
            self.sft.tuning == "full" and bool(self.model.adapter),
            "tuning full trains the model itself: leave out model.adapter, or merge it (corag merge)",
        )
        yield (
            not engine_of(self.model).loads_adapters,
            "a server cannot change its model or adapter: choose backend vllm or transformers",
        )
        yield (
            bool(self.learner) and (self.rounds > 1 or self.warm_start > 0 or self.start_from == "previous"),
            "a learner other than the model that samples cannot sample the next round, and has no "
            "previous adapter: give rounds 1, start_from base and no warm_start",
        )
        yield (
            0 < longest < self.rows.max_length,
            f"rows may have rows.max_length {self.rows.max_length} tokens, but training refuses more than "
            f"sft.max_length {longest}: give both the same",
        )
        yield (
            all(ROW_TASKS[task].of_thoughts for task in tasks),
            f"rounds sample chains, of which {', '.join(tasks)} gives no rows: choose other 'rows.tasks'",
        )
        asks_to_stop = bool(self.test.questions) and self.corag.stop == "learned"
        yield (
            asks_to_stop and "stop" not in tasks and not self.model.adapter,
            "corag.stop is learned, but nothing teaches it: add stop to 'rows.tasks'",
        )

    @property
    def held_out(self) -> HeldOut:
        """The test questions, with what they take over from the training questions."""
        return self.test.beside(self)

    @property
    def trained_model(self) -> str:
        """The model that is trained."""
        return self.learner or self.model.name

    def tuned_folder(self, turn: str) -> Path:
        """Where a turn's training goes."""
        return Path(self.out) / turn / ("model" if self.sft.tuning == "full" else "adapter")

    def tuned_model(self, name: str, tuned: str) -> ModelConfig:
        """The model ``name`` with a turn's adapter, or in its place the model that a turn trained whole."""
        if self.sft.tuning == "full":
            return replace(self.model, name=tuned or name)
        return replace(self.model, name=name, adapter=tuned)


@dataclass(frozen=True)
class TrainingTurn:
    """A warm start or a round: chains from some questions, and a training on them.

    Attributes:
        name: "warm-start" or "round-N", the name of its folder too.
        source: how its chains are made, as in :class:`SampleConfig`.
        skip: questions before its first one.
        limit: how many questions it takes.
        tuned: what samples: an adapter, or a model that was trained whole; "" for the base model alone.
        start: what the training goes on with, "" for the base model.
    """

    name: str
    source: Literal["model", "decomposition"]
    skip: int
    limit: int
    tuned: str
    start: str


def perform_rounds(config: RoundsConfig) -> list[str]:
    """Run every stage that is not finished, and return the names of the turns.

    Raises :class:`ConfigError`, before the first, for test questions that are among those trained on, for a
    training that could not begin, and if another process is at work in the folder.
    """
    require("fine-tuning", "torch", "transformers", "accelerate", "peft", "trl", "datasets")
    model_folder(config.trained_model)
    questions = config.load()
    turns = plan_turns(config, len(questions))
    check_test_questions(config, questions, turns)
    with lock_folder(Path(config.out), work="corag rounds"):
        save_plan(Path(config.out), turns)
        for stage in plan_stages(config, turns):
            run_stage(stage, stage_command(stage, config.launch))
        return [turn.name for turn in turns]


def plan_turns(config: RoundsConfig, total: int) -> list[TrainingTurn]:
    """Return the turns, with those of ``total`` questions that each takes.

    Raises :class:`ConfigError` if there are too few.
    """
    turns: list[TrainingTurn] = []
    tuned, skip = config.model.adapter, config.skip
    if config.warm_start:
        turns.append(TrainingTurn("warm-start", "decomposition", skip, config.warm_start, tuned, tuned))
        tuned, skip = str(config.tuned_folder("warm-start")), skip + config.warm_start
    for number in range(1, config.rounds + 1):
        limit = config.per_round or total - (skip - config.skip)
        start = tuned if config.start_from == "previous" else ""
        turns.append(TrainingTurn(f"round-{number}", "model", skip, limit, tuned, start))
        tuned = str(config.tuned_folder(f"round-{number}"))
        skip += config.per_round
    question_count = turns[-1].skip + max(1, turns[-1].limit) - config.skip
    if question_count > total:
        raise ConfigError(
            f"warm_start={config.warm_start} and rounds={config.rounds} with per_round="
            f"{config.per_round} want {question_count} questions, but there are {total}: give smaller "
            "numbers."
        )
    return turns


def check_test_questions(
    config: RoundsConfig, questions: Sequence[Question], turns: Sequence[TrainingTurn]
) -> None:
    """Raise :class:`ConfigError` if a test question is trained on: its figures would say nothing.

    :func:`eval.datasets.same.in_common` says which are the same.
    """
    if not config.test.questions:
        return
    starts = [(turn.skip - config.skip, turn.limit) for turn in turns]
    training_questions = [
        question for start, limit in starts for question in questions[start : start + limit]
    ]
    is_published = config.held_out.dataset == config.dataset != "jsonl"
    tests = config.held_out.load()
    if common := in_common(tests, training_questions, is_published=is_published):
        raise ConfigError(
            f"{len(common)} of the {len(tests)} test questions are trained on, such as '{common[0].id}': "
            "measured on them a model only remembers. Take others with 'test.skip' and 'test.limit', or from "
            "another file."
        )


def save_plan(root: Path, turns: Sequence[TrainingTurn]) -> None:
    """Write down which questions every turn takes.

    Raises :class:`ConfigError` if the folder was begun with other turns: its chains may be of questions that
    are now another turn's.
    """
    file, plan = root / "turns.json", [asdict(turn) for turn in turns]
    if file.is_file():
        earlier = Provenance({"turns": json.loads(file.read_text(encoding="utf-8"))})
        advice = "Give the same rounds, warm_start, per_round and questions, or choose another 'out'."
        Provenance({"turns": plan}).refuse_other(f"'{root}'", earlier, advice=advice)
    write_atomically(file, json.dumps(plan, indent=1) + "\n")


def plan_stages(config: RoundsConfig, turns: Sequence[TrainingTurn]) -> list[Stage]:
    """Return every stage in order, all options checked."""
    root = Path(config.out)
    stages: list[Stage] = []
    if config.test.questions:
        untuned = "" if config.learner else config.model.adapter
        stages.append(decoding_stage(config, root / "untuned", untuned))
    for turn in turns:
        stages += turn_stages(config, turn)
        if config.test.questions:
            stages.append(decoding_stage(config, root / turn.name, str(config.tuned_folder(turn.name))))
    return stages


def turn_stages(config: RoundsConfig, turn: TrainingTurn) -> list[Stage]:
    """Return the stages of a turn up to what it trains."""
    folder = Path(config.out) / turn.name
    chains, training_rows, tuned = folder / "chains", folder / "rows", config.tuned_folder(turn.name)
    sampling = SampleRunConfig(
        **config.question_options | {"skip": turn.skip, "limit": turn.limit},
        sample=_turn_sampling(config.sample, turn.source),
        corag=config.corag,
        model=config.tuned_model(config.model.name, turn.tuned),
        retriever=config.retriever,
        seed=config.seed,
        batch_size=config.batch_size,
        workers=config.workers,
        out=str(chains),
        max_failed=config.max_failed,
    )
    writing = MakeRowsConfig(
        [str(chains)],
        str(training_rows),
        config.trained_model,
        config.model.chat,
        config.rows,
        config.retriever,
        config.model.template_args,
    )
    options = {each.name: getattr(config.sft, each.name) for each in fields(TuningOptions)}
    options["learning_rate"] *= config.learning_rate_share if turn.start else 1
    is_full = config.sft.tuning == "full"
    tuning = SftConfig(
        **options,
        rows=[str(training_rows)],
        out=str(tuned),
        model=(turn.start if is_full else "") or config.trained_model,
        adapter="" if is_full else turn.start,
    )
    return [
        Stage(chains, sampling, _paths(turn.tuned)),
        Stage(training_rows, writing, (chains,)),
        Stage(tuned, tuning, (training_rows, *_paths(turn.start))),
    ]


def _turn_sampling(base: SampleConfig, source: Literal["model", "decomposition"]) -> SampleConfig:
    """Return how a turn's chains are made."""
    # Annotated ones are not rejected by the score of a model that has learned nothing yet.
    return replace(base, source=source, reject_below=None if source == "decomposition" else base.reject_below)


def decoding_stage(config: RoundsConfig, folder: Path, tuned: str) -> Stage:
    """Return the stage that answers the test questions with what a turn trained."""
    test = config.held_out
    options = RunConfig(
        **test.question_options,
        method=["corag"],
        corag=config.corag,
        model=config.tuned_model(config.trained_model, tuned),
        retriever=test.retriever if test.has_index else config.retriever,
        recall_at=test.recall_at,
        seed=config.seed,
        batch_size=config.batch_size,
        workers=config.workers,
        out=str(folder / "test"),
        max_failed=config.max_failed,
    )
    return Stage(folder / "test", options, _paths(tuned))


def _paths(tuned: str) -> tuple[Path, ...]:
    return (Path(tuned),) if tuned else ()
