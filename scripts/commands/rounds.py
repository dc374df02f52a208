"""The whole of CoRAG's training: sample chains, make rows, fine-tune, decode; once or several times.

    corag rounds --config training/configs/world_rounds.yaml --questions world/train.jsonl --retriever.index world-bm25 --out made

Every stage is a command of its own, whose options lie beside its result as YAML, and goes on where it was; so
does the same 'corag rounds'. With several rounds, chains are sampled by what the round before trained
(iterative rejection sampling, section 4.4 of the paper). With --learner, chains of the small --model train a
larger one (weak to strong).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml

from corag.config import CoRAGConfig
from core.errors import BackendError, ConfigError
from core.files import file_digest, write_atomically
from core.options import identity_of
from core.runs.folder import differences
from core.seeds import stable_hash
from eval.experiment.backends import require_index
from eval.experiment.questions import FurtherQuestions, QuestionFile
from eval.experiment.run import RunConfig
from eval.scoring.scorers import chosen_scorer
from generation.config import ModelConfig
from retrieval.config import RetrieverConfig
from retrieval.index_manifest import INDEX_FILE
from scripts.commands import rows, sample
from scripts.commands.stage_files import all_answered, read_by_asking, read_by_rows, read_by_tuning
from scripts.printing import print_results
from training.config import WATCHING, SftConfig, TuningOptions
from training.data import RowsConfig
from training.sampling import SampleConfig

SFT = os.path.relpath(Path(__file__).parents[2] / "training/sft.py")
StageOptions: TypeAlias = sample.Config | rows.Config | SftConfig | RunConfig


@dataclass(frozen=True)
class HeldOut(FurtherQuestions):
    """What every round is decoded on; without questions nothing is decoded.

    Attributes:
        recall_at: recall is measured over so many collected passages.
    """

    recall_at: int = 15


@dataclass(frozen=True)
class Config(QuestionFile):
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
        may_fail: questions of a stage that may fail; if more do, the same command asks them again, before it
            trains on the others.
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
    may_fail: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.out:
            raise ConfigError("no folder was given: write corag rounds --out FOLDER.")
        require_index(self.retriever)
        if min(self.rounds, self.warm_start, self.per_round) < 0 or not (self.rounds or self.warm_start):
            raise ConfigError(
                "rounds, warm_start and per_round must not be below 0, and one of the first two is needed."
            )
        for wrong, instead in (
            (self.shard, "rounds are not sharded: use 'corag sample --shard', and give all folders to 'corag rows'"),
            (self.sft.tuning == "full", "rounds train adapters: choose tuning lora or qlora, or run the stages one by one"),
            (self.learning_rate_share <= 0, f"learning_rate_share must be above 0, but it is {self.learning_rate_share:g}"),
            (self.may_fail < 0, f"may_fail must be a number of questions, but it is {self.may_fail}"),
            (self.model.backend == "server", "a server cannot change its adapter: choose backend vllm or transformers"),
            (
                self.learner and (self.rounds > 1 or self.warm_start or self.start_from == "previous"),
                "a learner other than the model that samples cannot sample the next round, and has no "
                "previous adapter: give rounds 1, start_from base and no warm_start",
            ),
        ):  # fmt: skip
            if wrong:
                raise ConfigError(f"{instead}.")

    @property
    def held_out(self) -> HeldOut:
        """The test questions, with what they take over from the training questions."""
        return self.test.beside(self)

    @property
    def trained(self) -> str:
        """The model that is trained."""
        return self.learner or self.model.name


@dataclass(frozen=True)
class Turn:
    """Chains from some questions, and a training on them.

    ``adapter``: of the model that samples; ``start``: what the training goes on with; "" for the base model
    alone.
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


def main(config: Config) -> int:
    """Perform every stage that is not finished.

    Print a table of the rounds if they are decoded, and a line of JSON.
    """
    planned = turns(config, len(config.load()))
    keep_plan(Path(config.out), planned)
    test = config.held_out
    tests = test.load() if test.questions else []
    for stage in stages(config, planned):
        perform(stage, command_of(stage, config.launch or default_launch()), config.may_fail)
    root = Path(config.out)
    names = [turn.name for turn in planned]
    print(json.dumps({"adapter": str(root / names[-1] / "adapter"), "rounds": names}))
    if not tests:
        return 0
    tested = {name: root / name / "test/corag" for name in ("untuned", *names)}
    return print_results(tested, tests, chosen_scorer("auto", test.dataset), test.recall_at)


def turns(config: Config, total: int) -> list[Turn]:
    """Say which of ``total`` questions every turn takes. Raises :class:`ConfigError` if there are too few."""
    root = Path(config.out)
    made: list[Turn] = []
    adapter, skip = config.model.adapter, config.skip
    if config.warm_start:
        made.append(Turn("warm-start", "decomposition", skip, config.warm_start, adapter, adapter))
        adapter, skip = str(root / "warm-start/adapter"), skip + config.warm_start
    for number in range(1, config.rounds + 1):
        limit = config.per_round or total - (skip - config.skip)
        start = adapter if config.start_from == "previous" else ""
        made.append(Turn(f"round-{number}", "model", skip, limit, adapter, start))
        adapter = str(root / f"round-{number}/adapter")
        skip += config.per_round
    needed = made[-1].skip + made[-1].limit - config.skip
    if needed > total or made[-1].limit < 1:
        raise ConfigError(
            f"warm_start and rounds want {needed} questions, but there are {total}: ask for fewer of them."
        )
    return made


def keep_plan(root: Path, planned: Sequence[Turn]) -> None:
    """Note which questions every turn takes.

    Raises :class:`ConfigError` if the folder was begun with other turns.

    Its folders of chains may hold questions that are now another turn's.
    """
    file = root / "turns.json"
    turns_now = [asdict(turn) for turn in planned]
    if file.is_file() and (
        changed := differences(json.loads(file.read_text(encoding="utf-8")), turns_now, "turns")
    ):
        raise ConfigError(
            f"'{root}' was begun with other turns:\n  " + "\n  ".join(changed) + "\n"
            "Give the same rounds, warm_start, per_round and questions, or choose another --out."
        )
    write_atomically(file, json.dumps(turns_now, indent=1) + "\n")


def stages(config: Config, planned: Sequence[Turn]) -> list[Stage]:
    """Return every stage in order, all options checked."""
    root = Path(config.out)
    made: list[Stage] = []
    if config.test.questions:
        made.append(decoding(config, root / "untuned", "" if config.learner else config.model.adapter))
    for turn in planned:
        folder = root / turn.name
        chains, training_rows, adapter = folder / "chains", folder / "rows", folder / "adapter"
        sampling = sample.Config(
            **config.question_options | {"skip": turn.skip, "limit": turn.limit},
            sample=_sampling(config.sample, turn.source),
            corag=config.corag,
            model=replace(config.model, adapter=turn.adapter),
            retriever=config.retriever,
            seed=config.seed,
            batch_size=config.batch_size,
            out=str(chains),
        )
        writing = rows.Config(
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
            **given, rows=str(training_rows), out=str(adapter), model=config.trained, adapter=turn.start
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


def decoding(config: Config, folder: Path, adapter: str) -> Stage:
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
    )
    return Stage(folder / "test", options, _paths(adapter))


def perform(stage: Stage, command: Sequence[str], may_fail: int = 0) -> None:
    """Run a stage's command unless it has finished with these options, on what is there now of the stages
    before it.

    It has not finished if more than ``may_fail`` questions failed. Raises :class:`BackendError` if it fails,
    or questions failed whose chains the next stage wants; what it had done is kept.
    """
    options = json.loads(json.dumps(asdict(stage.options)))
    text = yaml.safe_dump(options, sort_keys=False, width=120)
    read = [*map(_done, stage.after), *_contents(stage.options)]
    mark = stable_hash("\n".join([json.dumps(_lasting(stage.options)), *read]))
    if stage.result.exists() and _done(stage.result).startswith(mark):
        return
    _done_file(stage.result).unlink(missing_ok=True)
    file = stage.result.with_name(stage.result.name + ".yaml")
    write_atomically(file, text)
    print(f"corag: {stage.result} ...", file=sys.stderr, flush=True)
    status = subprocess.run([*command, "--config", str(file)], check=False).returncode
    if status:
        raise BackendError(
            f"the stage that makes '{stage.result}' ended with exit status {status}: its own message stands "
            "above. Once that is mended, or the folder removed if it was made with other options, the same "
            "command goes on from there."
        )
    if isinstance(stage.options, sample.Config | RunConfig) and not all_answered(stage.options, may_fail):
        return
    # The second word is of this one performance: what comes after depends on it, whatever the options.
    write_atomically(_done_file(stage.result), f"{mark} {stable_hash(str(time.time_ns()))}\n")


def command_of(stage: Stage, launch: Sequence[str]) -> list[str]:
    """Return the command of a stage without its options."""
    corag = [sys.executable, "-m", "scripts.cli"]
    match stage.options:
        case sample.Config():
            return [*corag, "sample"]
        case rows.Config():
            return [*corag, "rows"]
        case RunConfig():
            return [*corag, "run"]
        case SftConfig():
            return [sys.executable, "-m", "accelerate.commands.launch", *launch, SFT]


def default_launch() -> list[str]:
    """Return accelerate's arguments for one process.

    What precision to compute in is the training's own business.
    """
    import torch

    one = ["--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    return one if torch.cuda.is_available() else ["--cpu", *one]


def _lasting(options: StageOptions) -> dict[str, Any]:
    """Leave out what cannot change a stage's result."""
    left_out = WATCHING if isinstance(options, SftConfig) else ("batch_size",)
    return {name: value for name, value in identity_of(options).items() if name not in left_out}


def _contents(options: StageOptions) -> list[str]:
    """Return what identifies the content of the files and folders that a stage is given from outside."""
    if isinstance(options, SftConfig):
        return read_by_tuning(options)
    indexes = [file_digest(Path(index) / INDEX_FILE) for index in options.retriever.index]
    return [
        *(read_by_rows(options) if isinstance(options, rows.Config) else read_by_asking(options)),
        *indexes,
    ]


def _paths(adapter: str) -> tuple[Path, ...]:
    return (Path(adapter),) if adapter else ()


def _done_file(result: Path) -> Path:
    return result.with_name(result.name + ".done")


def _done(result: Path) -> str:
    """Return what identifies a finished stage; "" if it is not finished, or no stage."""
    file = _done_file(result)
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""
