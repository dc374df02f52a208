"""What a training that is sharded over GPUs is told: gradients in float32, activations by FSDP."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin

from training.config import SftConfig
from training.sft import resolve_checkpointing
from training.trainer import reduce_in_float32

Options = Callable[..., SftConfig]


@pytest.mark.parametrize("version", [1, 2])
def test_gradients_are_added_up_in_float32_and_nothing_else_changes(version: int) -> None:
    plugin = FullyShardedDataParallelPlugin(fsdp_version=version, mixed_precision_policy="bf16")
    assert plugin.mixed_precision_policy.reduce_dtype == torch.bfloat16, "as accelerate has it"
    reduce_in_float32(plugin)
    assert plugin.mixed_precision_policy.reduce_dtype == torch.float32
    assert plugin.mixed_precision_policy.param_dtype == torch.bfloat16
    plugin.validate_mixed_precision_policy()


def test_activations_are_not_computed_again_twice(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers ends with a ValueError once the model is loaded."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_checkpointing(options())
    monkeypatch.setenv("FSDP_ACTIVATION_CHECKPOINTING", "true")
    assert not resolve_checkpointing(options())
