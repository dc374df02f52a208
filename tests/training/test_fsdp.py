"""What a training that is sharded over GPUs is told: gradients in float32, activations by FSDP, shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from accelerate import FullyShardedDataParallelPlugin

import training
from training.config import SftConfig
from training.sft import resolve_checkpointing
from training.trainer import reduce_in_float32

Options = Callable[..., SftConfig]
CONFIGS = Path(training.__file__).parent / "configs"


@pytest.mark.parametrize("version", [1, 2])
def test_gradients_are_added_up_in_float32_and_nothing_else_changes(version: int) -> None:
    plugin = FullyShardedDataParallelPlugin(fsdp_version=version, mixed_precision_policy="bf16")
    assert plugin.mixed_precision_policy.reduce_dtype == torch.bfloat16, "as accelerate has it"
    reduce_in_float32(plugin)
    assert plugin.mixed_precision_policy.reduce_dtype == torch.float32
    assert plugin.mixed_precision_policy.param_dtype == torch.bfloat16
    plugin.validate_mixed_precision_policy()


@pytest.mark.parametrize("file", ["accelerate_8gpu.yaml", "accelerate_2nodes.yaml"])
def test_checkpoints_are_in_shards_and_activations_are_fsdps(file: str) -> None:
    fsdp = yaml.safe_load((CONFIGS / file).read_text())["fsdp_config"]
    assert fsdp["fsdp_activation_checkpointing"] and fsdp["fsdp_state_dict_type"] == "SHARDED_STATE_DICT"
    assert "gradient_checkpointing" not in yaml.safe_load((CONFIGS / "8gpu_full.yaml").read_text())


def test_activations_are_not_computed_again_twice(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers ends with a ValueError once the model is loaded."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_checkpointing(options())
    monkeypatch.setenv("FSDP_ACTIVATION_CHECKPOINTING", "true")
    assert not resolve_checkpointing(options())
