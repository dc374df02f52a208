"""Arguments of TRL and PEFT that are passed through: what is refused, and that the others arrive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corag.core.errors import ConfigError
from corag.core.options.command_line import parse
from tests.messages import raises_message
from training.config import LoraOptions, SftConfig
from training.sft import build_sft_arguments
from training.sft import main as train

Options = Callable[..., SftConfig]


@pytest.mark.parametrize(
    "trainer",
    [{"max_grad_nrm": 0.5}, {"num_train_epochs": 3}, {"completion_only_loss": False}],
)
def test_what_is_no_argument_or_not_free_is_refused(trainer: dict[str, Any], tmp_path: Path) -> None:
    config = SftConfig(rows=["rows"], out=str(tmp_path), trainer=trainer)
    with raises_message(ConfigError):
        build_sft_arguments(config)


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
