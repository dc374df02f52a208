"""Attention in blocks against PyTorch's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from training.attention import NAME, blockwise, register, suits


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("key_heads", [1, 2, 6])
def test_values_and_gradients_are_those_of_the_fused_attention(tokens: int, key_heads: int) -> None:
    torch.manual_seed(tokens)
    query = torch.randn(2, 6, tokens, 8, requires_grad=True)
    key, value = (torch.randn(2, key_heads, tokens, 8, requires_grad=True) for _ in range(2))
    weights = torch.randn(2, tokens, 6, 8)

    def gradients(attended: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad((attended * weights).sum(), (query, key, value))

    ours = blockwise(query, key, value, scaling=0.3, block=4)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=0.3, enable_gqa=True
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


def test_only_plain_attention_is_replaced() -> None:
    plain = {"sliding_window": None, "attention_dropout": 0.0}
    assert suits(SimpleNamespace(**plain)) and suits(
        SimpleNamespace(**plain, layer_types=["full_attention"] * 2)
    )
    assert not suits(SimpleNamespace(**plain | {"sliding_window": 512}))
    assert not suits(SimpleNamespace(**plain | {"attention_dropout": 0.1}))
    assert not suits(SimpleNamespace(**plain, layer_types=["full_attention", "sliding_attention"]))
