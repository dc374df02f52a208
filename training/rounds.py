"""CoRAG's training from questions to adapters, in turns (a warm start, rounds) of four stages each.

The stages are sampling, rows, fine-tuning and decoding. Each is a command of its own, in a process of its
own: an engine, a trainer and a JVM in one process would not give all of their memory back. A stage is
performed again when its options have changed, or anything that it reads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import yaml

from corag.config import CoRAGConfig
from core.errors import BackendError, ConfigError
from core.files import file_digest, write_atomically
from core.options import identity_of
from core.runs.failures import check_max_failed
from core.runs.folder import TRACES, read_lines
from core.runs.stamp import STAMP, Input, Stamp, is_finished, refuse_differences
from core.types import Question
from eval.datasets.same import in_common
from eval.experiment.backends import OPENED_ALIASES, indexes_read, require_index, weights_read
from eval.experiment.questions import FurtherQuestions, QuestionFile
from eval.experiment.run import RunConfig
from generation.config import ModelConfig
from retrieval.config import RetrieverConfig
from training.chains import config_of
from training.config import WATCHING, SftConfig, TuningOptions
from training.data import RowsConfig
from training.rows import MakeRowsConfig
from training.sample import SampleRunConfig
from training.sampling import SampleConfig

COMMAND = (sys.executable, "-m", "scripts.cli")
"""How the corag command is called: by name, since scripts stand above this room."""
ACCELERATE = (sys.executable, "-m", "accelerate.commands.launch")
SFT = str(Path(__file__).with_name("sft.py"))
_END_S = 10.0
_ANY = 10**9  # how many questions may fail in the command of a stage: here they are counted, not there
StageOptions: TypeAlias = SampleRunConfig | MakeRowsConfig | SftConfig | RunConfig


@dataclass(frozen=True)
class HeldOut(FurtherQuestions):
    """The option ``test``: what every round is decoded on; without questions nothing is decoded.

    Attributes:
        recall_at: recall is measured over so many collected passages.
    """

    recall_at: int = 15


@dataclass(frozen=True)
class RoundsConfig(QuestionFile):
    """Options of 'corag rounds'.

    Attributes:
        out: folder of everything that is made.
        rounds: how many times chains are sampled and a model trained on them; 0 after a warm start for that
            alone.
        warm_start: first train on the annotated decompositions of so many questions, which are then not
            sampled for. A model too small to write sub-queries by itself learns their form from them. 0 for
            none.
        per_round: questions that a round samples for, each round others; 0 for all of them in every round, as
            in the paper.
        start_from: whether a round trains a new adapter on the "base" model, or goes on with the "previous"
            one.
        learning_rate_share: a training that goes on from an adapter takes this share of sft's learning rate.
        sample: how chains are sampled; the source is the model but for the warm start.
        rows: which training rows are made of them.
        sft: how the model is trained.
        corag: prompts, passages and limits of sampling and decoding; strategy and stop rule of decoding.
        model: the model that samples.
        learner: the model that is trained, if it is not the same.
        retriever: the index of the training questions.
        test: what every round is decoded on.
        launch: arguments of 'accelerate launch', written --launch=--config_file,accelerate.yaml; nothing for
            one process, on the CPU if there is no GPU.
        seed: of sampling and decoding.
        batch_size: questions in flight at the same time.
        max_failed: questions of a stage that may fail; if more do, the same command asks them again, before
            it trains on the others.
    """

    out: str = ""
    rounds: int = 1
    warm_start: int = 0
    per_round: int = 0
    start_from: Literal["base", "previous"] = "base"
    learning_rate_share: float = 1.0
    sample: SampleConfig = field(default_factory=SampleConfig)
    rows: RowsConfig = field(default_factory=RowsConfig)
    sft: TuningOptions = field(default_factory=TuningOptions)
    corag: CoRAGConfig = field(default_factory=CoRAGConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    learner: str = ""
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    test: HeldOut = field(default_factory=HeldOut)
    launch: tuple[str, ...] = ()
    seed: int = 0
    batch_size: int = 64
    max_failed: int = 0

    ALIASES: ClassVar[dict[str, str]] = OPENED_ALIASES | {"may_fail": "max_failed"}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_max_failed(self.max_failed)
        if not self.out:
            raise ConfigError("no folder was given: write corag rounds --out FOLDER.")
        require_index(self.retriever)
        if min(self.rounds, self.warm_start, self.per_round) < 0 or not (self.rounds or self.warm_start):
            raise ConfigError(
                "rounds, warm_start and per_round must not be below 0, and one of the first two is needed."
            )
        for wrong, instead in self._impossible():
            if wrong:
                raise ConfigError(f"{instead}.")

    def _impossible(self) -> Iterator[tuple[bool, str]]:
        """Yield what cannot be, and what to do instead: said before hours go into the first stage."""
        yield (
            bool(self.shard),
            "rounds are not sharded: use 'corag sample --shard', and give all folders to 'corag rows'",
        )
        yield (
            self.sft.tuning == "full",
            "rounds train adapters: choose tuning lora or qlora, or run the stages one by one",
        )
        share = self.learning_rate_share
        yield share <= 0, f"learning_rate_share must be above 0, but it is {share:g}"
        yield (
            self.model.backend in ("server", "openai"),
            "a server cannot change its adapter: choose backend vllm or transformers",
        )
        shown, taught = self.corag.verify_passages, self.rows.verify_passages
        yield (
            "verify" in self.rows.tasks and self.corag.uses_verifier and taught not in (None, shown),
            f"rows.verify_passages is {taught}, but decoding would show the verifier {shown}: give both "
            "--rows.verify_passages and --corag.verify_passages the same number",
        )
        yield (
            bool(self.learner) and (self.rounds > 1 or self.warm_start > 0 or self.start_from == "previous"),
            "a learner other than the model that samples cannot sample the next round, and has no "
            "previous adapter: give rounds 1, start_from base and no warm_start",
        )

    @property
    def held_out(self) -> HeldOut:
        """The test questions, with what they take over from the training questions."""
        return self.test.beside(self)

    @property
    def trained(self) -> str:
        """The model that is trained."""
        return self.learner or self.model.name


@dataclass(frozen=True)
class TrainingTurn:
    """A warm start or a round: chains from some questions, and a training on them.

    Attributes:
        name: "warm-start" or "round-N", the name of its folder too.
        source: how its chains are made, as in :class:`SampleConfig`.
        skip: questions before its first one.
        limit: how many questions it takes.
        adapter: of the model that samples, "" for the base model alone.
        start: the adapter that the training goes on with, "" for a new one.
    """

    name: str
    source: Literal["model", "decomposition"]
    skip: int
    limit: int
    adapter: str
    start: str


@dataclass(frozen=True)
class Stage:
    """A command by its options, and the folder that it makes.

    ``after``: results of earlier stages that it reads.
    """

    result: Path
    options: StageOptions
    after: tuple[Path, ...] = ()

    @property
    def stamp_file(self) -> Path:
        """Where its stamp lies: beside the result, whose files are hashed as an adapter's."""
        return stamp_beside(self.result)


def perform_rounds(config: RoundsConfig) -> list[str]:
    """Perform every stage that is not finished, and return the names of the turns.

    Raises :class:`ConfigError`, before the first, for test questions that are among those trained on.
    """
    asked = config.load()
    planned = turns(config, len(asked))
    check_held_out(config, asked, planned)
    keep_plan(Path(config.out), planned)
    for stage in stages(config, planned):
        perform(stage, command_of(stage, config.launch or default_launch()), config.max_failed)
    return [turn.name for turn in planned]


def turns(config: RoundsConfig, total: int) -> list[TrainingTurn]:
    """Say which of ``total`` questions every turn takes. Raises :class:`ConfigError` if there are too few."""
    root = Path(config.out)
    made: list[TrainingTurn] = []
    adapter, skip = config.model.adapter, config.skip
    if config.warm_start:
        made.append(TrainingTurn("warm-start", "decomposition", skip, config.warm_start, adapter, adapter))
        adapter, skip = str(root / "warm-start/adapter"), skip + config.warm_start
    for number in range(1, config.rounds + 1):
        limit = config.per_round or total - (skip - config.skip)
        start = adapter if config.start_from == "previous" else ""
        made.append(TrainingTurn(f"round-{number}", "model", skip, limit, adapter, start))
        adapter = str(root / f"round-{number}/adapter")
        skip += config.per_round
    needed = made[-1].skip + made[-1].limit - config.skip
    if needed > total or made[-1].limit < 1:
        raise ConfigError(
            f"warm_start and rounds want {needed} questions, but there are {total}: ask for fewer of them."
        )
    return made


def check_held_out(config: RoundsConfig, asked: Sequence[Question], planned: Sequence[TrainingTurn]) -> None:
    """Raise :class:`ConfigError` if a test question is trained on: its figures would say nothing.

    :func:`eval.datasets.same.in_common` says which are the same.
    """
    if not config.test.questions:
        return
    starts = [(turn.skip - config.skip, turn.limit) for turn in planned]
    trained = [question for start, limit in starts for question in asked[start : start + limit]]
    published = config.held_out.dataset == config.dataset != "jsonl"
    tests = config.held_out.load()
    if shared := in_common(tests, trained, published=published):
        raise ConfigError(
            f"{len(shared)} of the {len(tests)} test questions are trained on, such as '{shared[0].id}': "
            "measured on them a model only remembers. Take others with --test.skip and --test.limit, or from "
            "another file."
        )


def keep_plan(root: Path, planned: Sequence[TrainingTurn]) -> None:
    """Note which questions every turn takes.

    Raises :class:`ConfigError` if the folder was begun with other turns: its chains may be of questions that
    are now another turn's.
    """
    file, now = root / "turns.json", [asdict(turn) for turn in planned]
    if file.is_file():
        before = Stamp({"turns": json.loads(file.read_text(encoding="utf-8"))})
        advice = "Give the same rounds, warm_start, per_round and questions, or choose another --out."
        refuse_differences(f"'{root}'", before, Stamp({"turns": now}), advice=advice)
    write_atomically(file, json.dumps(now, indent=1) + "\n")


def stages(config: RoundsConfig, planned: Sequence[TrainingTurn]) -> list[Stage]:
    """Return every stage in order, all options checked."""
    root = Path(config.out)
    made: list[Stage] = []
    if config.test.questions:
        made.append(decoding(config, root / "untuned", "" if config.learner else config.model.adapter))
    for turn in planned:
        folder = root / turn.name
        chains, training_rows, adapter = folder / "chains", folder / "rows", folder / "adapter"
        sampling = SampleRunConfig(
            **config.question_options | {"skip": turn.skip, "limit": turn.limit},
            sample=_sampling(config.sample, turn.source),
            corag=config.corag,
            model=replace(config.model, adapter=turn.adapter),
            retriever=config.retriever,
            seed=config.seed,
            batch_size=config.batch_size,
            out=str(chains),
            max_failed=_ANY,
        )
        writing = MakeRowsConfig(
            [str(chains)],
            str(training_rows),
            config.trained,
            config.model.chat,
            config.rows,
            config.retriever,
        )
        given = {each.name: getattr(config.sft, each.name) for each in fields(TuningOptions)}
        given["learning_rate"] *= config.learning_rate_share if turn.start else 1
        tuning = SftConfig(
            **given, rows=[str(training_rows)], out=str(adapter), model=config.trained, adapter=turn.start
        )
        made += [
            Stage(chains, sampling, _paths(turn.adapter)),
            Stage(training_rows, writing, (chains,)),
            Stage(adapter, tuning, (training_rows, *_paths(turn.start))),
        ]
        if config.test.questions:
            made.append(decoding(config, folder, str(adapter)))
    return made


def _sampling(chosen: SampleConfig, source: Literal["model", "decomposition"]) -> SampleConfig:
    """Say how a turn's chains are made.

    Annotated ones are not rejected by the score of a model that has learned nothing yet.
    """
    return replace(
        chosen, source=source, reject_below=None if source == "decomposition" else chosen.reject_below
    )


def decoding(config: RoundsConfig, folder: Path, adapter: str) -> Stage:
    """Return the stage that answers the test questions with an adapter."""
    test = config.held_out
    options = RunConfig(
        **test.question_options,
        method=["corag"],
        corag=config.corag,
        model=replace(config.model, name=config.trained, adapter=adapter),
        retriever=test.retriever if test.has_index else config.retriever,
        recall_at=test.recall_at,
        seed=config.seed,
        batch_size=config.batch_size,
        out=str(folder / "test"),
        max_failed=_ANY,
    )
    return Stage(folder / "test", options, _paths(adapter))


def perform(stage: Stage, command: Sequence[str], max_failed: int = 0) -> None:
    """Run a stage's command unless it has finished with these options on what is there now.

    It has not finished if more than ``max_failed`` questions failed. Raises :class:`BackendError` if it
    fails, or questions failed whose chains the next stage wants; what it had done is kept.
    """
    stamp = stamp_of(stage)
    if stage.result.exists() and is_finished(stage.stamp_file, stamp):
        return
    stamp.write(stage.stamp_file)  # as unfinished, until the command has ended well
    file = stage.result.with_name(stage.result.name + ".yaml")
    _say(f"{stage.result} ...")
    status = run_with(command, asdict(stage.options), file)
    if status:
        raise BackendError(
            f"the stage that makes '{stage.result}' ended with exit status {status}: its own message stands "
            "above. Once that is mended, or the folder removed if it was made with other options, the same "
            "command goes on from there."
        )
    if not isinstance(stage.options, SampleRunConfig | RunConfig) or check_answered(
        stage.options, max_failed
    ):
        stamp.finish(stage.stamp_file)


def run_to_end(command: Sequence[str]) -> int:
    """Run a command and return its exit status. What ends this process ends the command and its children.

    accelerate is killed before it can tell the training, which else would go on alone.
    """
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        raise


def run_with(command: Sequence[str], options: Mapping[str, Any], file: Path) -> int:
    """Run a command with options, which are written to ``file``, and return its exit status."""
    plain = json.loads(json.dumps(options))
    write_atomically(file, yaml.safe_dump(plain, sort_keys=False, width=120))
    return run_to_end([*command, "--config", str(file)])


def command_of(stage: Stage, launch: Sequence[str]) -> list[str]:
    """Return the command of a stage without its options. ``launch``: arguments of 'accelerate launch'."""
    match stage.options:
        case SampleRunConfig():
            return [*COMMAND, "sample"]
        case MakeRowsConfig():
            return [*COMMAND, "rows"]
        case RunConfig():
            return [*COMMAND, "run"]
        case SftConfig():
            return [*ACCELERATE, *launch, SFT]


def default_launch() -> list[str]:
    """Return accelerate's arguments for one process.

    What precision to compute in is the training's own business.
    """
    import torch

    one = ["--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    threads = ["--num_cpu_threads_per_process", str(torch.get_num_threads())]
    return one if torch.cuda.is_available() else ["--cpu", *threads, *one]


def stamp_of(stage: Stage) -> Stamp:
    """Say what a stage's result depends on: its options, and what it reads, by content.

    Of stages before, their stamps are read: what was made anew is another, whatever its options.
    """
    options = stage.options
    left_out = WATCHING if isinstance(options, SftConfig) else ("batch_size", "max_failed")
    made_with = {name: value for name, value in identity_of(options).items() if name not in left_out}
    made_from = {"after": [Input(str(path), file_digest(stamp_beside(path))) for path in stage.after]}
    match options:
        case SftConfig():
            return Stamp(made_with, made_from | weights_read(options.model, options.adapter))
        case MakeRowsConfig():
            # Prompts are those of the chains but for these, which sampling does not use.
            corag, tasks = config_of([Path(chains) for chains in options.chains]), options.rows.tasks
            prompts = [corag.prompt("stop_check")] if "stop" in tasks else []
            prompts += [corag.prompt("verify")] if "verify" in tasks else []
            made_from |= weights_read(options.model)
        case _:
            prompts = list(options.corag.templates())
            files = {"questions": options.questions, "aliases": options.aliases, **options.corag.files()}
            made_from |= {part: [Input(file, file_digest(file))] for part, file in files.items() if file}
            made_from |= weights_read(options.model.name, options.model.adapter)
    made_with["prompts"] = [prompt.identity for prompt in prompts]
    return Stamp(made_with, made_from | indexes_read(options.retriever))


def check_answered(options: SampleRunConfig | RunConfig, max_failed: int) -> bool:
    """Return whether all questions of a command are answered, but for ``max_failed`` at most; say so if not.

    Raises :class:`BackendError` if chains are missing: rows are made of all chains at once, and later ones
    cannot be added.
    """
    folder = options.folder if isinstance(options, SampleRunConfig) else Path(options.out) / options.method[0]
    lines = read_lines(folder).values() if (folder / TRACES).is_file() else ()
    failed = [line.parsed() for line in lines if line.failed]
    # First without reading the questions, of which there may be many.
    if len(failed) <= max_failed:
        return True
    # The run may hold more than are asked now.
    asked = {question.id for question in options.load()}
    failed = [row for row in failed if row.question.id in asked]
    if len(failed) <= max_failed:
        return True
    said = (
        f"of the {len(asked)} questions of '{folder}', {len(failed)} failed, the first, "
        f"'{failed[0].question.id}', with:\n"
        f"  {failed[0].error.splitlines()[0]}\nThe same command asks them again"
    )
    if isinstance(options, SampleRunConfig):
        raise BackendError(
            f"{said}, before it trains on the others. To leave them out, give --max_failed {len(failed)}."
        )
    _say(f"{said}.")
    return False


def stamp_beside(result: Path) -> Path:
    """Return where the stamp of a stage's result lies."""
    return result.with_name(f"{result.name}.{STAMP}")


def _say(line: str) -> None:
    sys.stderr.write(f"corag: {line}\n")
    sys.stderr.flush()


def _paths(adapter: str) -> tuple[Path, ...]:
    return (Path(adapter),) if adapter else ()
