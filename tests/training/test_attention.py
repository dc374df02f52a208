"""Attention in blocks against PyTorch's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig

from training.attention import NAME, blockwise, register, suits


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("key_heads", [1, 2, 6])
@pytest.mark.parametrize("window", [None, 1, 3, 4, 6, 20])
def test_values_and_gradients_are_those_of_the_fused_attention(
    tokens: int, key_heads: int, window: int | None
) -> None:
    torch.manual_seed(tokens)
    query = torch.randn(2, 6, tokens, 8, requires_grad=True)
    key, value = (torch.randn(2, key_heads, tokens, 8, requires_grad=True) for _ in range(2))
    weights = torch.randn(2, tokens, 6, 8)

    def gradients(attended: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad((attended * weights).sum(), (query, key, value))

    seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    ours = blockwise(query, key, value, scaling=0.3, window=window, block=4)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=seen if window is None else seen.triu(1 - window),
        scale=0.3,
        enable_gqa=True,
    ).transpose(1, 2)
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_model_with_it_says_the_same_of_padded_rows(tiny_model: str) -> None:
    register()
    ids = torch.randint(0, 4000, (2, 150))  # longer than a block
    mask = torch.ones_like(ids)
    mask[1, 90:] = 0  # padding stands behind the text
    fused = AutoModelForCausalLM.from_pretrained(tiny_model, attn_implementation="sdpa", dtype=torch.float32)
    blocks = AutoModelForCausalLM.from_pretrained(tiny_model, attn_implementation=NAME, dtype=torch.float32)
    with torch.no_grad():
        expected, found = fused(ids, attention_mask=mask).logits, blocks(ids).logits
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-4, rtol=1e-4)


def test_a_model_with_windows_says_the_same() -> None:
    register()
    kinds = ["sliding_attention", "full_attention"]
    config = Gemma3TextConfig(
        vocab_size=99, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, sliding_window=40, layer_types=kinds,
    )  # fmt: skip
    assert suits(config)
    torch.manual_seed(0)
    fused = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    blocks = AutoModelForCausalLM.from_config(config, attn_implementation=NAME).eval()
    blocks.load_state_dict(fused.state_dict())
    ids = torch.randint(0, 99, (2, 300))
    with torch.no_grad():
        torch.testing.assert_close(blocks(ids).logits, fused(ids).logits, atol=1e-4, rtol=1e-4)


def test_only_plain_attention_is_replaced() -> None:
    plain = {"model_type": "its_own", "sliding_window": None, "attention_dropout": 0.0}
    assert suits(SimpleNamespace(**plain)) and suits(
        SimpleNamespace(**plain, layer_types=["full_attention"] * 2)
    )
    assert not suits(SimpleNamespace(**plain | {"sliding_window": 512}))
    assert not suits(SimpleNamespace(**plain | {"attention_dropout": 0.1}))
    both = ["full_attention", "sliding_attention"]
    assert not suits(SimpleNamespace(**plain, layer_types=both))
    assert suits(SimpleNamespace(**plain | {"model_type": "qwen3", "sliding_window": 512}, layer_types=both))
    assert not suits(SimpleNamespace(**plain | {"model_type": "qwen3"}, attn_logit_softcapping=50.0))
