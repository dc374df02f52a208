"""Causal attention for training on a CPU: matrix products block by block.

PyTorch's fused attention takes two to five times as long in bfloat16 on a CPU, most of it in the backward
pass; on one with AMX two thirds as long. Blocks of queries look at the keys up to their own end only, so half
of the square is never computed; the softmax is in float32.

It is registered with transformers by name, which is why it stands by itself: nothing of ours calls it.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "corag_blockwise"
# Models whose layers with a window do what is done here. Those of others may add sinks, or cap the scores.
_WINDOWED_MODELS = frozenset({"gemma3_text", "mistral", "qwen2", "qwen3"})
# Small enough that the scores of a block stay in the cache, large enough for fast matrix products.
_BLOCK = 128


def blockwise(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    *,
    window: int | None = None,
    block: int = _BLOCK,
) -> torch.Tensor:
    """Return causal attention, of shape (rows, tokens, heads, size) as transformers wants it.

    ``query``: (rows, heads, tokens, size). ``key``, ``value``: the same with as many heads or fewer (grouped
    queries). ``scaling``: of the scores, 1 / sqrt(size) as a rule. ``window``: a token sees so many, itself
    the last of them; None for all before it. There is no mask: padding must stand behind the text, where no
    token of the text looks.
    """
    heads_per_key = query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(heads_per_key, dim=1).transpose(-1, -2)
    values = value.repeat_interleave(heads_per_key, dim=1)
    query = query * scaling
    future = torch.full((block, block), float("-inf"), dtype=query.dtype, device=query.device).triu(1)
    blocks = []
    for start in range(0, query.shape[2], block):
        end = min(start + block, query.shape[2])
        first = 0 if window is None else max(0, start + 1 - window)  # what the block's first query sees
        scores = query[:, :, start:end] @ keys[..., first:end]
        scores[..., start - first :] += future[: end - start, : end - start]
        if window is not None and end - first > window:
            past = torch.ones(end - start, end - first, dtype=torch.bool, device=query.device)
            scores = scores.masked_fill(past.tril(start - first - window), float("-inf"))
        weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
        blocks.append(weights @ values[:, :, first:end])
    return torch.cat(blocks, dim=2).transpose(1, 2)


def register() -> None:
    """Make the attention known to transformers by its name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: None,
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        window = options.get("sliding_window")
        return blockwise(query, key, value, options["scaling"], window=window), None

    AttentionInterface.register(NAME, attend)
    # No mask is made: it would be a square of all tokens, and say what the blocks do anyway.
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)


def suits(config: Any) -> bool:
    """Whether a model's attention is causal, over everything or a window, and nothing else."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    further = ("attention_dropout", "attn_logit_softcapping", "use_bidirectional_attention")
    if any(getattr(config, name, None) for name in further):
        return False
    # Each family of transformers has a configuration class of its own, with some of these.
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds == {"full_attention"} and getattr(config, "sliding_window", None) is None:
        return True
    return config.model_type in _WINDOWED_MODELS and kinds <= {"full_attention", "sliding_attention"}
