"""Preferences with TRL's real trainer on a tiny real model: what is learned, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOTrainer

from corag.core.errors import ConfigError, DataError
from corag.generation.adapters import read_manifest
from corag.generation.rendering import Renderer
from tests.messages import raises_message
from tests.training.experimental.test_pairs import sampled
from tests.training.launching import kill_after, launched
from training.checks import check_packages
from training.experimental.config import DpoConfig
from training.experimental.dpo import load_pairs, main, make_trainer
from training.experimental.pairs import PairsConfig, write_pairs

Options = Callable[..., DpoConfig]
DPO = str(Path(__file__).parents[3] / "training/experimental/dpo.py")


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory, tiny_model: str) -> str:
    folder = tmp_path_factory.mktemp("pairs")
    renderer = Renderer.load(tiny_model)
    write_pairs([sampled(folder / "chains")], folder / "pairs", renderer, PairsConfig(validation=0.3))
    return str(folder / "pairs")


@pytest.fixture
def options(pairs: str, start: str, tiny_model: str, tmp_path: Path) -> Options:
    """Return a maker of options for a quick training into a folder of the test's own."""

    def make(**changes: Any) -> DpoConfig:
        quick = {
            "pairs": pairs, "out": str(tmp_path / "adapter"), "model": tiny_model, "adapter": start,
            "precision": "float32", "batch_size": 4, "max_steps": 3, "learning_rate": 5e-3,
            "logging_steps": 1, "warmup": 0.0,
        }  # fmt: skip
        return DpoConfig(**(quick | changes))

    return make


def trainer_of(config: DpoConfig) -> Any:
    return make_trainer(config, config.model, load_pairs(config, config.model))


def weights_of(config: Any) -> dict[str, torch.Tensor]:
    return dict(load_file(Path(config.out) / "adapter_model.safetensors"))


def test_steps_raise_the_margin_of_the_chosen(options: Options) -> None:
    config = options(max_steps=12)
    manifest = main(config)
    assert manifest == read_manifest(Path(config.out))
    lines = [json.loads(line) for line in (Path(config.out) / "metrics.jsonl").read_text().splitlines()]
    margins = [line["rewards/margins"] for line in lines if "rewards/margins" in line]
    assert len(margins) == 12 and margins[0] == pytest.approx(0, abs=1e-5), "it starts as its reference"
    assert margins[-1] > 0.1
    found = manifest["result"]["evaluation"]
    assert (
        found["margin"] > 0 and found["accuracy"] > 0.5 and manifest["result"]["first_loss"] > found["loss"]
    )
    assert manifest["settings"]["pairs"]["questions"] == 6
    assert sorted(path.name for path in Path(config.out).iterdir() if path.is_dir()) == ["checkpoints"]


def test_figures_of_pairs_set_aside_are_means_over_pairs(options: Options) -> None:
    """Means over batches would weigh a last, smaller batch as much as a full one."""
    config = options(learning_rate=5e-2, max_steps=4)
    trainer = trainer_of(config)
    trainer.train()
    count = len(trainer.eval_dataset)
    whole = trainer.evaluate()
    single = [trainer.evaluate(trainer.eval_dataset.select([number])) for number in range(count)]
    assert count % config.batch_size, "the last batch would be full: choose other pairs"
    for name in ("eval_loss", "eval_rewards/margins", "eval_rewards/accuracies"):
        values = [found[name] for found in single]
        assert whole[name] == pytest.approx(sum(values) / count, abs=1e-5)
    assert len({found["eval_rewards/margins"] for found in single}) == count


def test_the_loss_is_that_of_the_completions_given_the_reference(options: Options) -> None:
    """By hand, one sequence at a time, and as TRL computes it over every position."""
    config = options(beta=0.3)
    trainer = trainer_of(config)
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():  # away from the reference
            if ".default." in name:
                weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    rows = [trainer.train_dataset[number] for number in (0, 3, 5)]
    batch = trainer.data_collator(rows)
    ours = trainer.compute_loss(trainer.model, batch)

    def log_likelihood(prompt: list[int], reply: list[int]) -> torch.Tensor:
        ids = torch.tensor([*prompt, *reply])
        logprobs = trainer.model(input_ids=ids[None]).logits[0].float().log_softmax(-1)
        return logprobs[len(prompt) - 1 : -1].gather(1, ids[len(prompt) :, None]).sum()

    def ratio(adapter: str) -> torch.Tensor:
        trainer.model.set_adapter(adapter)
        found = [
            log_likelihood(row["prompt_ids"], row["chosen_ids"])
            - log_likelihood(row["prompt_ids"], row["rejected_ids"])
            for row in rows
        ]
        return torch.stack(found)

    with torch.no_grad():
        reference, policy = ratio("ref"), ratio("default")
    expected = -torch.nn.functional.logsigmoid(0.3 * (policy - reference)).mean()
    assert ours.item() == pytest.approx(expected.item(), abs=1e-4)
    assert policy.sub(reference).abs().max() > 1e-2

    class Theirs(DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
            return dataset

    model = AutoModelForCausalLM.from_pretrained(config.model)
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(model, config.adapter, is_trainable=True)
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    theirs = Theirs(
        model=adapted, args=trainer.args, train_dataset=trainer.train_dataset, processing_class=tokenizer
    )
    same = {name: weight for name, weight in trainer.model.named_parameters() if ".default." in name}
    with torch.no_grad():
        for name, weight in theirs.model.named_parameters():
            if ".default." in name:
                weight.copy_(same[name])
    loss = theirs.compute_loss(theirs.model, theirs.data_collator(rows))
    assert loss.item() == pytest.approx(ours.item(), abs=1e-4)
    ours.backward()
    loss.backward()
    for name, weight in theirs.model.named_parameters():
        if ".default." in name:
            torch.testing.assert_close(same[name].grad, weight.grad, rtol=1e-3, atol=1e-5)


def test_what_does_not_fit_is_refused(options: Options, other_model: str, tmp_path: Path) -> None:
    with raises_message(DataError):
        main(options(max_length=20))
    with raises_message(DataError):
        main(options(pairs=str(tmp_path)))
    with raises_message(ConfigError):
        main(options(model=other_model))
    for changes, said in (
        ({"adapter": ""}, r"goes on from an adapter.*corag train"),
        ({"tuning": "full"}, "lora or qlora"),
        ({"beta": 0.0}, "beta must be above 0"),
        ({"batching": "padding_free"}, "choose batching auto"),
    ):
        with pytest.raises(ConfigError, match=said):
            options(**changes)


def test_a_report_to_a_package_that_is_not_there_is_refused(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "trackio" else find_spec(name)
    )
    with raises_message(ConfigError):
        check_packages(options(report_to=("trackio",)))
    check_packages(options())


def test_the_same_command_again_does_nothing_and_another_is_refused(options: Options) -> None:
    first = main(options(max_steps=1))
    assert main(options(max_steps=1, logging_steps=5)) == first
    with raises_message(ConfigError):
        main(options(max_steps=1, beta=0.5))


@pytest.mark.drill
def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(options: Options, tmp_path: Path) -> None:
    once = options(max_steps=14, save_steps=2, save_precision="float32", out=str(tmp_path / "once"))
    twice = replace(once, out=str(tmp_path / "twice"))
    with (tmp_path / "log").open("w") as log:
        process = launched(DPO, twice, tmp_path, log)
        kill_after(process, tmp_path / "twice", 4)
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert "corag: step 1 of 14, loss" in (tmp_path / "log").read_text()
    resumed, whole = main(twice)["result"], main(once)["result"]
    assert resumed["resumed_from"].startswith("checkpoint-") and whole["resumed_from"] == ""
    before, after = weights_of(once), weights_of(twice)
    assert before.keys() == after.keys()
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-5)
    steps = [
        [json.loads(line)["step"] for line in (Path(each.out) / "metrics.jsonl").read_text().splitlines()]
        for each in (once, twice)
    ]
    assert steps[0] == steps[1], "each step stands there once"
