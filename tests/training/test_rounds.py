"""'corag rounds': what every turn does, what is done again, and the whole of it on a tiny world with a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from core.errors import BackendError, ConfigError
from core.records import read_manifest, read_rows
from eval.world.write import write_world
from generation import adapters
from generation.config import ModelConfig
from generation.models import folder_digest
from retrieval.build import build_index
from retrieval.config import IndexConfig
from scripts.cli import run_command
from scripts.rounds import Config, Plan, default_launch, plan, stage


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Config]:
    """Return a maker of options for ten questions."""
    questions = tmp_path / "train.jsonl"
    lines = [json.dumps({"id": f"q{n}", "question": f"Question {n}?", "answers": ["yes"]}) for n in range(10)]
    questions.write_text("\n".join(lines) + "\n")
    return lambda **options: Config(questions=str(questions), out="made", **options)


def test_one_round_samples_for_every_question(config: Callable[..., Config]) -> None:
    assert plan(config()) == [Plan("round-1", "model", 0, 10, "", "")]


def test_questions_of_the_warm_start_are_not_sampled_for(config: Callable[..., Config]) -> None:
    warm = "made/warm-start/adapter"
    assert plan(config(warm_start=4)) == [
        Plan("warm-start", "decomposition", 0, 4, "", ""),
        Plan("round-1", "model", 4, 6, warm, ""),
    ]
    assert plan(config(warm_start=4, start_from="previous"))[1] == Plan("round-1", "model", 4, 6, warm, warm)


def test_every_round_samples_with_what_the_one_before_trained(config: Callable[..., Config]) -> None:
    before = ["", "made/round-1/adapter", "made/round-2/adapter"]
    assert plan(config(rounds=3)) == [
        Plan(f"round-{number}", "model", 0, 10, adapter, "") for number, adapter in enumerate(before, 1)
    ]
    assert [turn.start for turn in plan(config(rounds=3, start_from="previous"))] == before


def test_rounds_may_take_questions_of_their_own(config: Callable[..., Config]) -> None:
    turns = plan(config(rounds=2, warm_start=2, per_round=3, skip=1))
    assert [(turn.name, turn.skip, turn.limit) for turn in turns] == [
        ("warm-start", 1, 2),
        ("round-1", 3, 3),
        ("round-2", 6, 3),
    ]


def test_an_adapter_of_the_sampler_is_where_everything_starts(config: Callable[..., Config]) -> None:
    turns = plan(config(model=ModelConfig(adapter="mine"), warm_start=1, rounds=2, start_from="previous"))
    warm, first = "made/warm-start/adapter", "made/round-1/adapter"
    assert [(turn.adapter, turn.start) for turn in turns] == [("mine", "mine"), (warm, warm), (first, first)]


def test_more_questions_than_there_are_are_refused(config: Callable[..., Config]) -> None:
    plan(config(rounds=2, warm_start=4, per_round=3))
    for wanted, options in ((11, {"per_round": 11}), (13, {"rounds": 3, "warm_start": 4, "per_round": 3})):
        with pytest.raises(ConfigError, match=f"want {wanted} questions, but there are 10"):
            plan(config(**options))
    with pytest.raises(ConfigError, match="there are 10: ask for fewer"):
        plan(config(warm_start=10))
    with pytest.raises(ConfigError, match="want 7 questions, but there are 6"):
        plan(config(per_round=7, skip=4))


def test_a_learner_cannot_sample_the_next_round(config: Callable[..., Config]) -> None:
    assert config(learner="larger").learner == "larger"
    for options in ({"rounds": 2}, {"warm_start": 1}):
        with pytest.raises(ConfigError, match="cannot sample the next round"):
            config(learner="larger", **options)
    with pytest.raises(ConfigError, match="rounds must be at least 1"):
        config(rounds=0)


WORKER = """
import pathlib, sys
file = pathlib.Path(sys.argv[sys.argv.index("--config") + 1])
folder = file.with_suffix("")
folder.mkdir(exist_ok=True)
with (folder / "runs").open("a") as log:
    log.write("run\\n")
sys.exit(3 if "fail: true" in file.read_text() else 0)
"""


@pytest.fixture
def work(tmp_path: Path) -> Callable[..., int]:
    """Return a stage that makes tmp_path/result and says how often it has been run."""
    (tmp_path / "worker.py").write_text(WORKER)

    def run(**options: Any) -> int:
        stage(tmp_path / "result", [sys.executable, str(tmp_path / "worker.py")], options)
        return len((tmp_path / "result/runs").read_text().splitlines())

    return run


def test_a_stage_that_is_done_is_not_done_again(work: Callable[..., int], tmp_path: Path) -> None:
    assert [work(size=1, names=("a", "b")), work(size=1, names=("a", "b"))] == [1, 1]
    assert yaml.safe_load((tmp_path / "result.yaml").read_text()) == {"size": 1, "names": ["a", "b"]}
    assert [work(size=2), work(size=2)] == [2, 2]


def test_a_stage_whose_result_was_removed_is_done_again(work: Callable[..., int], tmp_path: Path) -> None:
    work(size=1)
    (tmp_path / "result/runs").unlink()
    (tmp_path / "result").rmdir()
    assert work(size=1) == 1


def test_a_stage_that_fails_is_named_and_tried_again(work: Callable[..., int], tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(BackendError, match=f"makes '{tmp_path / 'result'}' ended with exit status 3"):
            work(fail=True)
    assert work(fail=False) == 3


def test_without_a_gpu_training_is_told_so() -> None:
    assert ("--cpu" in default_launch()) != torch.cuda.is_available()


@pytest.mark.slow
def test_from_sampling_to_the_decoded_table(
    tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = tmp_path / "world"
    write_world(world, passages=500, train=8, dev=1, test=4, report=lambda _: None)
    build_index(IndexConfig([str(world / "corpus.jsonl")], str(tmp_path / "bm25")), lambda _: None)
    options = {
        "questions": str(world / "train.jsonl"),
        "out": str(tmp_path / "made"),
        "warm_start": 4,
        "start_from": "previous",
        "sample": {"chains": 2, "max_hops": 2},
        "rows": {"ratio": 1.0, "validation": 0.0},
        "sft": {"max_steps": 3, "batch_size": 2, "precision": "float32", "logging_steps": 1, "learning_rate": 0.01},
        "corag": {
            "max_hops": 2, "passages_per_hop": 3, "context_passages": 3,
            "max_sub_query_tokens": 8, "max_sub_answer_tokens": 8, "max_answer_tokens": 8,
        },
        "model": {"backend": "transformers", "name": tiny_model, "dtype": "float32"},
        "retriever": {"index": [str(tmp_path / "bm25")]},
        "test": {"questions": str(world / "test.jsonl")},
    }  # fmt: skip
    (tmp_path / "rounds.yaml").write_text(yaml.safe_dump(options))
    words = ["rounds", "--config", str(tmp_path / "rounds.yaml")]
    first = subprocess.run([sys.executable, "-m", "scripts.cli", *words], capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    made = tmp_path / "made"
    stages = [line for line in first.stderr.splitlines() if line.startswith("corag: ") and line.endswith(" ...")]
    assert stages == [
        f"corag: {made / name} ..."
        for name in ("untuned/test", *(f"{turn}/{what}" for turn in ("warm-start", "round-1") for what in
                                       ("chains", "rows", "adapter", "test")))
    ]  # fmt: skip

    asked = [json.loads(line)["id"] for line in (world / "train.jsonl").read_text().splitlines()]
    for turn, source, ids in (("warm-start", "decomposition", asked[:4]), ("round-1", "model", asked[4:])):
        chains = read_rows(made / turn / "chains")
        assert sorted(chains) == sorted(ids) and not any(record["error"] for record in chains.values())
        assert read_manifest(made / turn / "chains")["settings"]["options"]["sample"]["source"] == source
        assert any(record["answer"]["chosen"] is not None for record in chains.values())
        trained = adapters.read_manifest(made / turn / "adapter")
        assert trained is not None and trained["result"]["steps"] == 3
    assert all(len(record["answer"]["chains"]) == 2 for record in chains.values())
    warm = made / "warm-start/adapter"
    assert folder_digest(warm) in read_manifest(made / "round-1/chains")["settings"]["model"]
    assert trained["settings"]["options"]["adapter"] == str(warm)

    lines = [line for line in first.stdout.splitlines() if line.startswith("{")]
    assert json.loads(lines[-2]) == {"adapter": str(made / "round-1/adapter"), "rounds": ["warm-start", "round-1"]}
    runs = json.loads(lines[-1])["runs"]
    assert list(runs) == ["untuned", "warm-start", "round-1"]
    assert all(figures["n"] == 4 and figures["failed"] == 0 for figures in runs.values())
    models = [read_manifest(Path(figures["folder"]))["settings"]["model"] for figures in runs.values()]
    assert len(set(models)) == 3 and folder_digest(made / "round-1/adapter") in models[2]

    assert run_command(words[0], words[1:]) == 0
    again = capsys.readouterr()
    assert " ..." not in again.err
    assert [line for line in again.out.splitlines() if line.startswith("{")][-1] == lines[-1]
