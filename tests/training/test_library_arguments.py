"""Arguments of TRL and PEFT that are passed through: their names, what is refused, and that they arrive."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import peft
import pytest
import trl

from corag.core.command_line import parse
from corag.core.errors import ConfigError
from tests.messages import raises_message
from training.config import LoraOptions, SftConfig
from training.library_arguments import argument_names, check_library_arguments
from training.sft import main as train

Options = Callable[..., SftConfig]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SFTConfig", trl.SFTConfig),
        ("LoraConfig", peft.LoraConfig),
    ],
)
def test_the_names_in_the_sources_are_those_of_the_classes(name: str, kind: Any) -> None:
    public = {each.name for each in fields(kind) if each.init and not each.name.startswith("_")}
    assert set(argument_names(name)) == public


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer": {"max_grad_nrm": 0.5}},
        {"trainer": {"num_train_epochs": 3}},
        {"trainer": {"learning_rate": 1}},
        {"trainer": {"completion_only_loss": False}},
        {"trainer": {"num_generations": 8}},
        {"lora": {"more": {"use_rslor": True}}},
        {"lora": {"more": {"r": 8}}},
        {"lora": {"more": {"use_dora": True}}, "tuning": "full"},
    ],
)
def test_what_is_no_argument_or_not_free_is_refused(changes: dict[str, Any]) -> None:
    config = SftConfig(rows=["rows"], out="out", **changes)
    with raises_message(ConfigError):
        check_library_arguments(config)


def test_arguments_reach_the_trainer_and_the_adapter_and_are_noted(options: Options) -> None:
    words = ["--trainer", "{max_grad_norm: 0.5, optim: sgd}", "--lora.more", "{use_rslora: true}"]
    given = parse(SftConfig, ["--rows", "rows", "--out", "out", *words], "corag train", "")
    config = options(trainer=given.trainer, lora=LoraOptions(rank=4, more=given.lora.more))
    manifest = train(config)
    noted = manifest["settings"]["options"]
    assert noted["trainer"] == {"max_grad_norm": 0.5, "optim": "sgd"}
    assert noted["lora"]["more"] == {"use_rslora": True}
    assert json.loads((Path(config.out) / "adapter_config.json").read_text())["use_rslora"]
    with raises_message(ConfigError):
        train(options(trainer={"optim": "adamm"}, out=config.out + "-other"))
