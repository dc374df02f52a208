"""The whole of CoRAG's training: sample chains, make rows, fine-tune, decode; once or several times.

    corag rounds --config training/configs/world_rounds.yaml --questions world/train.jsonl --out rounds/world

Every stage is a command of its own (its options lie beside its result as YAML), and goes on where it was, so the same 'corag
rounds'
again does too. With several rounds, chains are sampled by what the round before trained (iterative rejection sampling, paper,
section 4.4). With --learner, chains of the small --model train a larger one (weak to strong).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from corag.config import CoRAGConfig
from core.errors import BackendError, ConfigError
from core.files import write_atomically
from core.seeds import stable_hash
from eval.datasets import load_questions
from eval.scorers import chosen_scorer
from generation.config import ModelConfig
from retrieval.config import RetrieverConfig
from scripts.questions import QuestionFile
from scripts.run import report
from training.config import SftConfig
from training.data import RowsConfig
from training.sampling import SampleConfig

SFT = os.path.relpath(Path(__file__).parents[1] / "training/sft.py")


@dataclass(frozen=True)
class TestOptions:
    """What every round is decoded on; no questions, no decoding.

    Attributes:
        questions: a question file that training does not see.
        dataset: its format and scorer.
        limit: answer the first so many questions only; 0 for all.
        retriever: its index, if it is not the training questions' own.
        recall_at: recall is measured over so many collected passages.
    """

    questions: str = ""
    dataset: str = "jsonl"
    limit: int = 0
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    recall_at: int = 15


@dataclass(frozen=True)
class Config(QuestionFile):
    """Options of 'corag rounds'.

    Attributes:
        out: folder of everything that is made.
        rounds: how many times chains are sampled and a model trained on them.
        warm_start: first train on the annotated decompositions of so many questions, which are then not sampled for: a model
            too small
            to write sub-queries by itself learns their form from them. 0 for none.
        per_round: questions that a round samples for, each round others; 0 for all of them in every round, as in the paper.
        start_from: whether a round trains a new adapter on the "base" model, or goes on with the "previous" one.
        sample: how chains are sampled.
        rows: which training rows are made of them.
        sft: how the model is trained; rows, out, model and adapter are filled in.
        corag: prompts, passages and limits of sampling and decoding; strategy and stop rule of decoding.
        model: the model that samples.
        learner: the model that is trained, if it is not the same.
        retriever: the index of the training questions.
        test: what every round is decoded on.
        launch: arguments of 'accelerate launch', such as "--config_file,accelerate.yaml"; nothing: one process, on CPU
            without a GPU.
        seed: all randomness derives from it.
        batch_size: questions in flight at the same time.
    """

    out: str = ""
    rounds: int = 1
    warm_start: int = 0
    per_round: int = 0
    start_from: Literal["base", "previous"] = "base"
    sample: SampleConfig = field(default_factory=SampleConfig)
    rows: RowsConfig = field(default_factory=RowsConfig)
    sft: SftConfig = field(default_factory=lambda: SftConfig(rows="auto", out="auto"))
    corag: CoRAGConfig = field(default_factory=CoRAGConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    learner: str = ""
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    test: TestOptions = field(default_factory=TestOptions)
    launch: tuple[str, ...] = ()
    seed: int = 0
    batch_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.out:
            raise ConfigError("no folder was given: write corag rounds --out FOLDER.")
        if self.shard:
            raise ConfigError(
                "rounds are not sharded: sample in shards with 'corag sample --shard' and give all of them to 'corag rows'."
            )
        if self.rounds < 1 or self.warm_start < 0 or self.per_round < 0:
            raise ConfigError("rounds must be at least 1, warm_start and per_round not below 0.")
        if self.learner and (self.rounds > 1 or self.warm_start):
            raise ConfigError(
                "a learner other than the model that samples cannot sample the next round itself: give rounds 1 and no warm_start."
            )


@dataclass(frozen=True)
class Plan:
    """One turn: which questions, made into chains by whom, trained from what.

    ``adapter``: of the sampler, "" for the base model.
    """

    name: str
    source: Literal["model", "decomposition"]
    skip: int
    limit: int
    adapter: str
    start: str


def main(config: Config) -> int:
    """Run every stage that is not finished; print a table of the rounds if they are decoded, and a line of JSON."""
    root = Path(config.out)
    turns = plan(config)
    tested: dict[str, Path] = {}
    if config.test.questions:
        tested["untuned"] = decode(config, root / "untuned", config.learner or config.model.name, config.model.adapter)
    for turn in turns:
        folder = root / turn.name
        train(config, turn, folder)
        if config.test.questions:
            tested[turn.name] = decode(config, folder, config.learner or config.model.name, str(folder / "adapter"))
    print(json.dumps({"adapter": str(root / turns[-1].name / "adapter"), "rounds": [turn.name for turn in turns]}))
    if not tested:
        return 0
    questions = load_questions(config.test.questions, config.test.dataset, limit=config.test.limit)
    return report(tested, questions, chosen_scorer("auto", config.test.dataset), config.test.recall_at)


def plan(config: Config) -> list[Plan]:
    """Say what every turn does."""
    root = Path(config.out)
    total = len(config.load())
    turns: list[Plan] = []
    adapter, skip = config.model.adapter, config.skip
    if config.warm_start:
        turns.append(Plan("warm-start", "decomposition", skip, config.warm_start, adapter, adapter))
        adapter, skip = str(root / "warm-start/adapter"), skip + config.warm_start
    for number in range(1, config.rounds + 1):
        limit = config.per_round or total - (skip - config.skip)
        turns.append(
            Plan(f"round-{number}", "model", skip, limit, adapter, adapter if config.start_from == "previous" else "")
        )
        adapter = str(root / f"round-{number}/adapter")
        skip += config.per_round
    needed = turns[-1].skip + turns[-1].limit - config.skip
    if needed > total or turns[-1].limit < 1:
        raise ConfigError(
            f"warm_start and rounds want {needed} questions, but there are {total}: ask for fewer of them."
        )
    return turns


def train(config: Config, turn: Plan, folder: Path) -> None:
    """Sample, make rows, fine-tune."""
    sampler = replace(config.model, adapter=turn.adapter)
    stage(
        folder / "chains",
        [sys.executable, "-m", "scripts.cli", "sample"],
        _asked(config)
        | {"skip": turn.skip, "limit": turn.limit, "sample": asdict(replace(config.sample, source=turn.source))}
        | {"corag": asdict(config.corag), "model": asdict(sampler), "retriever": asdict(config.retriever)}
        | {"seed": config.seed, "batch_size": config.batch_size, "out": str(folder / "chains")},
        turn.adapter,
    )
    stage(
        folder / "rows",
        [sys.executable, "-m", "scripts.cli", "rows"],
        {"chains": [str(folder / "chains")], "out": str(folder / "rows"), "rows": asdict(config.rows)}
        | {
            "model": config.learner or config.model.name,
            "chat": config.model.chat,
            "retriever": asdict(config.retriever),
        },
        str(folder / "chains"),
    )
    options = replace(
        config.sft,
        rows=str(folder / "rows"),
        out=str(folder / "adapter"),
        model=config.learner or config.model.name,
        adapter=turn.start,
    )
    launch = [sys.executable, "-m", "accelerate.commands.launch", *(config.launch or default_launch()), SFT]
    stage(folder / "adapter", launch, asdict(options), str(folder / "rows"), turn.start)


def decode(config: Config, folder: Path, model: str, adapter: str) -> Path:
    """Answer the test questions with an adapter and return the run."""
    chosen = config.test.retriever
    retriever = chosen if chosen.index or chosen.url else config.retriever
    stage(
        folder / "test",
        [sys.executable, "-m", "scripts.cli", "run"],
        {"questions": config.test.questions, "dataset": config.test.dataset, "limit": config.test.limit}
        | {"method": ["corag"], "corag": asdict(config.corag), "retriever": asdict(retriever)}
        | {"model": asdict(replace(config.model, name=model, adapter=adapter)), "recall_at": config.test.recall_at}
        | {"seed": config.seed, "batch_size": config.batch_size, "out": str(folder / "test")},
        adapter,
    )
    return folder / "test/corag"


def stage(result: Path, command: Sequence[str], options: Mapping[str, Any], *after: str) -> None:
    """Run a command with its options in a YAML file beside its result, unless it has finished with the same ones.

    ``after``: results of earlier stages that it reads, "" for none; if those were made anew, so must this be. Raises
    :class:`BackendError` if it fails; what it had done is kept.
    """
    text = yaml.safe_dump(json.loads(json.dumps(options)), sort_keys=False, width=120)
    mark = stable_hash("\n".join([text, *(_mark_of(Path(earlier)) for earlier in after if earlier)]))
    if result.exists() and _mark_of(result) == mark:
        return
    file = result.with_name(result.name + ".yaml")
    write_atomically(file, text)
    print(f"corag: {result} ...", file=sys.stderr, flush=True)
    status = subprocess.run([*command, "--config", str(file)], check=False).returncode
    if status:
        raise BackendError(
            f"the stage that makes '{result}' ended with exit status {status}: its own message stands above. Once that is "
            "mended, the same command goes on from there."
        )
    write_atomically(_mark_file(result), mark + "\n")


def _mark_file(result: Path) -> Path:
    return result.with_name(result.name + ".done")


def _mark_of(result: Path) -> str:
    """Return what identifies a finished stage: its options, and those of all before it."""
    file = _mark_file(result)
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def default_launch() -> list[str]:
    """Return accelerate's arguments for one process; what precision to compute in is the training's own business."""
    import torch

    one = ["--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    return one if torch.cuda.is_available() else ["--cpu", *one]


def _asked(config: Config) -> dict[str, Any]:
    names = ("questions", "dataset", "split", "subset", "aliases")
    return {name: getattr(config, name) for name in names}
