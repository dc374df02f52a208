"""'corag rounds': what every turn does, what is done again, and the whole of it on a tiny world with a tiny
model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from corag.chains.config import CoRAGConfig
from corag.cli.running import run_command
from corag.core.errors import ConfigError
from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import Manifest
from corag.core.system.folder_lock import lock_folder
from corag.generation import adapters
from corag.generation.config import ModelConfig
from corag.generation.models import folder_digest
from eval.datasets.world.write import write_world
from eval.experiment.run import RunConfig
from eval.experiment.workers.config import ray_workers
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from tests.messages import raises_message
from training.config import SftConfig, TuningOptions
from training.data import RowsConfig
from training.rounds import (
    HeldOut,
    RoundsConfig,
    TrainingTurn,
    check_test_questions,
    perform_rounds,
    plan_stages,
    plan_turns,
)
from training.rows import MakeRowsConfig
from training.sample import SampleRunConfig
from training.stages import launch_command, stage_command


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., RoundsConfig]:
    """Return a maker of options for ten questions."""
    questions = tmp_path / "train.jsonl"
    lines = [json.dumps({"id": f"q{n}", "question": f"Question {n}?", "answers": ["yes"]}) for n in range(10)]
    questions.write_text("\n".join(lines) + "\n")
    index = RetrieverConfig(index=["train-index"])
    return lambda **options: RoundsConfig(
        questions=str(questions), out="made", **{"retriever": index} | options
    )


def plan(config: RoundsConfig) -> list[TrainingTurn]:
    return plan_turns(config, len(config.load()))


def test_one_round_samples_for_every_question(config: Callable[..., RoundsConfig]) -> None:
    assert plan(config()) == [TrainingTurn("round-1", "model", 0, 10, "", "")]


def test_questions_of_the_warm_start_are_not_sampled_for(config: Callable[..., RoundsConfig]) -> None:
    warm = "made/warm-start/adapter"
    assert plan(config(warm_start=4)) == [
        TrainingTurn("warm-start", "decomposition", 0, 4, "", ""),
        TrainingTurn("round-1", "model", 4, 6, warm, ""),
    ]
    assert plan(config(warm_start=4, start_from="previous"))[1] == TrainingTurn(
        "round-1", "model", 4, 6, warm, warm
    )


def test_every_round_samples_with_what_the_one_before_trained(config: Callable[..., RoundsConfig]) -> None:
    before = ["", "made/round-1/adapter", "made/round-2/adapter"]
    assert plan(config(rounds=3)) == [
        TrainingTurn(f"round-{number}", "model", 0, 10, adapter, "")
        for number, adapter in enumerate(before, 1)
    ]
    assert [turn.start for turn in plan(config(rounds=3, start_from="previous"))] == before


def test_rounds_may_take_questions_of_their_own(config: Callable[..., RoundsConfig]) -> None:
    turns = plan(config(rounds=2, warm_start=2, per_round=3, skip=1))
    assert [(turn.name, turn.skip, turn.limit) for turn in turns] == [
        ("warm-start", 1, 2),
        ("round-1", 3, 3),
        ("round-2", 6, 3),
    ]


def test_an_adapter_of_the_sampler_is_where_everything_starts(config: Callable[..., RoundsConfig]) -> None:
    turns = plan(config(model=ModelConfig(adapter="mine"), warm_start=1, rounds=2, start_from="previous"))
    warm, first = "made/warm-start/adapter", "made/round-1/adapter"
    assert [(turn.tuned, turn.start) for turn in turns] == [("mine", "mine"), (warm, warm), (first, first)]


def test_more_questions_than_there_are_are_refused(
    config: Callable[..., RoundsConfig], tmp_path: Path
) -> None:
    plan(config(rounds=2, warm_start=4, per_round=3))
    for wanted, options in ((11, {"per_round": 11}), (13, {"rounds": 3, "warm_start": 4, "per_round": 3})):
        with pytest.raises(ConfigError, match=f"want {wanted} questions, but there are 10"):
            plan(config(**options))
    with raises_message(ConfigError):
        perform_rounds(replace(config(warm_start=10), out=str(tmp_path / "made")))
    assert not (tmp_path / "made").exists()
    with raises_message(ConfigError):
        plan(config(per_round=7, skip=4))


def test_a_learner_cannot_sample_the_next_round(config: Callable[..., RoundsConfig]) -> None:
    assert config(learner="larger").learner == "larger"
    for options in ({"rounds": 2}, {"warm_start": 1}):
        with raises_message(ConfigError):
            config(learner="larger", **options)
    with raises_message(ConfigError):
        config(rounds=0)


def test_a_warm_start_may_stand_alone(config: Callable[..., RoundsConfig]) -> None:
    assert [turn.name for turn in plan(config(rounds=0, warm_start=4))] == ["warm-start"]


def test_what_cannot_work_is_refused_before_hours_go_into_it(config: Callable[..., RoundsConfig]) -> None:
    for message, options in (
        ("tuning full", {"sft": TuningOptions(tuning="full"), "model": ModelConfig(adapter="mine")}),
        (
            "a server cannot change its model or adapter",
            {"model": ModelConfig(backend="server", urls=("http://localhost:1",))},
        ),
        ("training refuses more than", {"sft": TuningOptions(max_length=512)}),
        ("of which thought gives no rows", {"rows": RowsConfig(tasks=("thought",))}),
        (
            "nothing teaches it: add stop to 'rows.tasks'",
            {"test": HeldOut(questions="test.jsonl"), "corag": CoRAGConfig(stop="learned")},
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            config(**options)


def test_a_training_that_cannot_begin_is_refused_before_the_first_stage(
    config: Callable[..., RoundsConfig], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"no model folder '\./nowhere'"):
        perform_rounds(replace(config(learner="./nowhere"), out=str(tmp_path / "made")))
    with lock_folder(tmp_path / "made"), pytest.raises(ConfigError, match="is at work in"):
        perform_rounds(replace(config(), out=str(tmp_path / "made")))


def test_what_goes_on_from_an_adapter_is_trained_more_gently(config: Callable[..., RoundsConfig]) -> None:
    asked = config(
        warm_start=4, start_from="previous", learning_rate_share=0.25, sft=TuningOptions(learning_rate=4e-4)
    )
    rates = [
        stage.options.learning_rate
        for stage in plan_stages(asked, plan(asked))
        if isinstance(stage.options, SftConfig)
    ]
    assert rates == [4e-4, 1e-4]
    with raises_message(ConfigError):
        config(learning_rate_share=0)


def test_stages_are_given_what_the_ones_before_made(
    config: Callable[..., RoundsConfig], tmp_path: Path
) -> None:
    asked = config(
        warm_start=4, start_from="previous", sft=TuningOptions(max_steps=7), seed=5, launch=("--cpu",),
        test=HeldOut(questions="test.jsonl", limit=2, retriever=RetrieverConfig(index=["test-index"])),
    )  # fmt: skip
    made = plan_stages(asked, plan(asked))
    warm, first = Path("made/warm-start"), Path("made/round-1")
    assert [(stage.result, stage.after) for stage in made] == [
        (Path("made/untuned/test"), ()),
        (warm / "chains", ()), (warm / "rows", (warm / "chains",)), (warm / "adapter", (warm / "rows",)),
        (warm / "test", (warm / "adapter",)),
        (first / "chains", (warm / "adapter",)), (first / "rows", (first / "chains",)),
        (first / "adapter", (first / "rows", warm / "adapter")), (first / "test", (first / "adapter",)),
    ]  # fmt: skip
    chains, written, tuned, tested = (stage.options for stage in made[5:])
    assert isinstance(chains, SampleRunConfig) and isinstance(written, MakeRowsConfig)
    assert isinstance(tuned, SftConfig) and isinstance(tested, RunConfig)
    assert (chains.skip, chains.limit, chains.seed, chains.sample.source) == (4, 6, 5, "model")
    assert (chains.model.adapter, chains.retriever.index) == ("made/warm-start/adapter", ["train-index"])
    assert (written.chains, written.model) == (["made/round-1/chains"], "default")
    assert tuned.rows == ["made/round-1/rows"]
    assert (tuned.adapter, tuned.max_steps) == ("made/warm-start/adapter", 7)
    assert (tested.questions, tested.limit, tested.retriever.index) == ("test.jsonl", 2, ["test-index"])
    assert (tested.model.adapter, tested.method) == ("made/round-1/adapter", ["corag"])
    assert stage_command(made[7], ["--cpu"])[1:5] == ["-m", "accelerate.commands.launch", "--quiet", "--cpu"]


@pytest.mark.parametrize("start_from", ["base", "previous"])
def test_a_round_that_trains_the_whole_model_samples_with_the_one_before(
    config: Callable[..., RoundsConfig], start_from: Any
) -> None:
    asked = config(
        rounds=2, start_from=start_from, sft=TuningOptions(tuning="full"), test=HeldOut("test.jsonl"),
        model=ModelConfig(name="base"),
    )  # fmt: skip
    made = [stage.options for stage in plan_stages(asked, plan(asked))]
    asking = [each.model.name for each in made if isinstance(each, SampleRunConfig | RunConfig)]
    first, second = "made/round-1/model", "made/round-2/model"
    assert asking == ["base", "base", first, first, second]
    tuned = [(each.model, each.adapter, each.out) for each in made if isinstance(each, SftConfig)]
    assert tuned == [("base", "", first), ("base" if start_from == "base" else first, "", second)]


@pytest.mark.parametrize(
    ("gpus", "tuning", "words"),
    [
        (0, "lora", []), (1, "full", []), (4, "lora", ["--multi_gpu", "--num_processes", "4"]),
        (8, "full", ["accelerate_8gpu.yaml", "--num_processes", "8"]),
    ],
)  # fmt: skip
def test_a_training_takes_all_gpus(
    gpus: int, tuning: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    command = launch_command("sft.py", (), tuning)
    assert command[-1] == "sft.py" and ("accelerate.commands.launch" in command) == (gpus > 1)
    assert all(any(each.endswith(word) for each in command) for word in words)


def test_test_questions_are_read_as_the_training_questions_unless_something_else_is_said(
    config: Callable[..., RoundsConfig],
) -> None:
    def tested(test: HeldOut) -> tuple[str, str]:
        asked = config(dataset="2wikimultihopqa", aliases="aliases.json", test=test)
        first, *_, last = (stage.options for stage in plan_stages(asked, plan_turns(asked, 10)))
        assert isinstance(first, RunConfig) and isinstance(last, RunConfig)
        assert first.source == last.source and first.aliases == last.aliases
        return last.dataset, last.aliases

    assert tested(HeldOut("test.json")) == ("2wikimultihopqa", "aliases.json")
    assert tested(HeldOut("test.json", aliases="others.json")) == ("2wikimultihopqa", "others.json")
    assert tested(HeldOut("test.jsonl", dataset="jsonl")) == ("jsonl", "")
    with raises_message(ConfigError):
        HeldOut("test.json", shard="1/2")


def test_test_questions_that_are_trained_on_are_refused_before_the_first_stage(
    config: Callable[..., RoundsConfig], tmp_path: Path
) -> None:
    def check(records: list[tuple[str, str]], **options: Any) -> None:
        file = tmp_path / "test.jsonl"
        lines = [json.dumps({"id": name, "question": text, "answers": ["x"]}) for name, text in records]
        file.write_text("\n".join(lines) + "\n")
        asked = config(test=HeldOut(str(file)), **options)
        check_test_questions(asked, asked.load(), plan(asked))

    check([("q1", "An own question under a number that the other file has too?")])
    with raises_message(ConfigError):
        check([("mine", "Question of my own?"), ("other", "  question 3")])
    with raises_message(ConfigError):
        perform_rounds(config(test=HeldOut(str(tmp_path / "test.jsonl"), skip=1)))
    with raises_message(ConfigError):
        check([("t", "Question 3?")], per_round=4)
    check([("t", "Question 9?")], per_round=4)  # no round takes it
    check([("t", "Question 1?")], skip=2)


@pytest.mark.parametrize(
    ("trained", "test"),
    [
        ("Who wrote the co-op's rules?", "Who wrote\u00a0the co-op's rules?"),
        ("Who wrote the co-op's rules?", "Who wrote the co-op's rules\uff1f"),
        ("Who wrote the co-op's rules?", "Who wrote the co op\u2019s rules?"),
        ("Who wrote the co-op's rules?", "Who wrote the co\u2011op's rules ?"),
        ("Was the U.S. first?", "was the US first"),
        ("Wo liegt die Stra\u00dfe von Caf\u00e9 Eins?", "WO LIEGT DIE STRASSE VON CAFE\u0301 EINS?"),
    ],
)
def test_test_questions_are_known_again_in_other_typing(
    config: Callable[..., RoundsConfig], tmp_path: Path, trained: str, test: str
) -> None:
    asked = own_files(config, tmp_path, ("a", trained, "Mara"), ("b", test, "Velden"))
    with raises_message(ConfigError):
        check_test_questions(asked, asked.load(), plan(asked))


def test_the_same_id_and_answer_are_the_same_question_in_whatever_words(
    config: Callable[..., RoundsConfig], tmp_path: Path
) -> None:
    train = ("17", "Who wrote The Glass Orchard?", "Mara Velden")
    asked = own_files(config, tmp_path, train, ("17", "Name the author of The Glass Orchard.", "mara velden"))
    with raises_message(ConfigError):
        check_test_questions(asked, asked.load(), plan(asked))
    further = "Which town was the home of that teacher?"  # by chance of the same number and answer
    for other in (("17", "Which river is it?", "Issel"), ("18", "Who is it?", "Mara Velden"),
                  ("17", further, "Mara Velden")):  # fmt: skip
        asked = own_files(config, tmp_path, train, other)
        check_test_questions(asked, asked.load(), plan(asked))


def own_files(
    config: Callable[..., RoundsConfig], folder: Path, train: tuple[str, str, str], test: tuple[str, str, str]
) -> RoundsConfig:
    """Options for one question, (id, text, answer), to train on and one to test with."""
    for name, (number, text, answer) in (("one.jsonl", train), ("other.jsonl", test)):
        record = {"id": number, "question": text, "answers": [answer]}
        (folder / name).write_text(json.dumps(record) + "\n", encoding="utf-8")
    options = config(test=HeldOut(str(folder / "other.jsonl")))
    return replace(options, questions=str(folder / "one.jsonl"))


def test_a_learner_is_trained_on_chains_of_another_model(config: Callable[..., RoundsConfig]) -> None:
    asked = config(
        learner="larger", model=ModelConfig(name="small", adapter="mine"), test=HeldOut("test.jsonl")
    )
    untuned, chains, written, tuned, tested = (stage.options for stage in plan_stages(asked, plan(asked)))
    assert isinstance(chains, SampleRunConfig) and isinstance(written, MakeRowsConfig)
    assert isinstance(tuned, SftConfig)
    assert (chains.model.name, chains.model.adapter) == ("small", "mine")
    assert (written.model, tuned.model, tuned.adapter) == ("larger", "larger", "")
    for decoded, adapter in ((untuned, ""), (tested, "made/round-1/adapter")):
        assert isinstance(decoded, RunConfig)
        assert (decoded.model.name, decoded.model.adapter) == ("larger", adapter)


def test_stages_sample_and_answer_with_the_workers_of_the_command(
    config: Callable[..., RoundsConfig],
) -> None:
    asked = config(workers=ray_workers(count=2, gpus_per_worker=4), test=HeldOut(questions="test.jsonl"))
    kinds = {type(stage.options).__name__: stage.options for stage in plan_stages(asked, plan(asked))}
    for name in ("SampleRunConfig", "RunConfig"):
        assert getattr(kinds[name], "workers") == asked.workers, name  # noqa: B009


@pytest.mark.slow
def test_from_sampling_to_the_decoded_table(
    tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = tmp_path / "world"
    write_world(world, passages=500, train=4, dev=1, test=2, report=lambda _: None)
    build_index(IndexConfig([str(world / "corpus.jsonl")], str(tmp_path / "bm25")), lambda _: None)
    options = {
        "questions": str(world / "train.jsonl"),
        "out": str(tmp_path / "made"),
        "sample": {"chains": 2, "max_hops": 2},
        "rows": {"ratio": 1.0, "validation": 0.0},
        "sft": {"max_steps": 3, "batch_size": 2, "precision": "float32", "logging_steps": 1,
        "learning_rate": 0.01},
        "corag": {
            "max_hops": 2, "passages_per_hop": 3, "context_passages": 3,
            "max_sub_query_tokens": 8, "max_sub_answer_tokens": 8, "max_answer_tokens": 8,
        },
        "model": {"backend": "transformers", "name": tiny_model, "dtype": "float32"},
        "retriever": {"index": [str(tmp_path / "bm25")]},
        "test": {"questions": str(world / "test.jsonl")},
    }  # fmt: skip
    (tmp_path / "rounds.yaml").write_text(yaml.safe_dump(options))
    words = ["rounds", "--config", str(tmp_path / "rounds.yaml"), "--json"]
    first = subprocess.run(
        [sys.executable, "-m", "corag.cli", *words], capture_output=True, text=True, check=False
    )
    assert first.returncode == 0, first.stderr
    made = tmp_path / "made"
    chains = read_rows(made / "round-1/chains")
    assert len(chains) == 4 and not any(row.error for row in chains.values())
    assert any(row.further["chosen"] is not None for row in chains.values())
    assert all(len(row.further["chains"]) == 2 for row in chains.values())
    trained = adapters.read_manifest(made / "round-1/adapter")
    assert trained is not None and trained["result"]["steps"] == 3

    last = first.stdout.splitlines()[-1]
    record = json.loads(last)
    assert record["adapter"] == str(made / "round-1/adapter") and record["rounds"] == ["round-1"]
    runs = record["runs"]
    assert list(runs) == ["untuned", "round-1"]
    assert all(figures["n"] == 2 and figures["failed"] == 0 for figures in runs.values())
    models = [Manifest.read(Path(figures["folder"])).model for figures in runs.values()]
    assert len(set(models)) == 2 and folder_digest(made / "round-1/adapter") in models[1]

    assert run_command(words[0], words[1:]) == 0
    again = capsys.readouterr()
    assert " ..." not in again.err
    assert again.out.splitlines()[-1] == last
