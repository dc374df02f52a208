"""Which layers a new adapter is put on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Gemma3Config, LlamaConfig

from corag.core.errors import ConfigError
from tests.messages import raises_message
from training.config import SftConfig
from training.model_setup import outside_text_layers, resolve_batching


def tiny(**sizes: int) -> dict[str, int]:
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    } | sizes


def adapted_layers(config: Any, targets: Any) -> list[str]:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        lora = LoraConfig(target_modules=targets, exclude_modules=outside_text_layers(model))
        adapted = get_peft_model(model, lora)
    return [name for name, _ in adapted.named_parameters() if "lora_A" in name]


@pytest.mark.parametrize(
    ("targets", "count"), [("all-linear", 7), (["q_proj"], 1), (["q_proj", "lm_head"], 2)]
)
def test_an_adapter_of_a_model_that_sees_is_of_its_text_layers_alone(targets: Any, count: int) -> None:
    """The vision tower's layers have the same names; rows of text never reach them."""
    text, vision = tiny(vocab_size=64, num_key_value_heads=1), tiny(image_size=28, patch_size=14)
    seeing = Gemma3Config(text_config=text, vision_config=vision)
    names = adapted_layers(seeing, targets)
    assert len(names) == count and not [name for name in names if "vision" in name or "projector" in name]
    assert len(adapted_layers(LlamaConfig(**text), targets)) == count


def test_rows_stand_behind_one_another_under_flash_attention_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another each would look at the rows before it; compiled kernels come from their own package."""

    def config(**options: str) -> SftConfig:
        return SftConfig(rows=["rows"], out="out", **options)

    with raises_message(ConfigError):
        config(batching="padding_free", attention="sdpa")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_batching(config()) == "by_length"  # without the package flash-attn
    assert resolve_batching(config(attention="kernels-community/flash-attn2")) == "padding_free"
    assert resolve_batching(config(attention="sdpa")) == "by_length"
