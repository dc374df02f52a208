"""What a training will take, judged before its first step by how fast this machine multiplies matrices."""

from __future__ import annotations

import time
from typing import Any

import torch

from corag.core.pace import clock
from training.columns import lengths

_MAX_SIZE = 4096  # rows and columns of the product that is timed: larger ones are no faster, and want memory
_SECONDS = 0.2  # that timing takes
_SAMPLE = 500  # rows whose length is looked at
# Of the speed of that product: attention, the output layer, the optimiser and Python take the rest. Two
# layers of a small model had 0.3 to 0.7 of it, on a core that others worked on too.
_SHARE = 0.5


def describe_expected(args: Any, state: Any, model: Any, dataset: Any) -> str:
    """Return a sentence on the steps to come, their tokens, and about how long they take.

    A forward pass costs 2 operations per weight and token, a backward pass 2 more for the gradients of
    activations and 2 for those of weights that learn (Kaplan et al. 2020, section 2.1), and activations that
    are computed again 2.

    Args:
        args: transformers' arguments of the training.
        state: the trainer's, with the steps that an earlier start has done.
        model: what is trained.
        dataset: its rows; without tokens in them (an encoder's texts) there is no time.
    """
    steps = state.max_steps - state.global_step
    rows = args.per_device_train_batch_size * args.gradient_accumulation_steps
    sentence = f"{steps:,} steps of {rows * args.world_size:,} rows to go"
    lengths = _lengths(dataset)
    weights, width, inner = _matrices(model)
    if not lengths or not weights:
        return f"{sentence}: the first one tells how long they take"
    tokens = rows * sum(lengths) / len(lengths)  # of a step of this process
    learns = sum(each.numel() for each in model.parameters() if each.requires_grad)
    per_weight = 4 + 2 * (learns > 0.5 * weights) + 2 * bool(args.gradient_checkpointing)
    micro_batch = max(1, round(tokens / args.gradient_accumulation_steps))
    speed = _SHARE * _multiplications(micro_batch, width, inner, args)
    seconds = steps * tokens * per_weight * weights / speed
    all_tokens = steps * tokens * args.world_size
    return (
        f"{sentence}, about {all_tokens:,.0f} tokens: roughly {clock(seconds)}, judged by a product of "
        "matrices; the lines below tell it better"
    )


def _lengths(dataset: Any) -> list[int]:
    """Return the tokens of some rows, evenly spread; none where rows have no tokens."""
    # Of datasets; what other trainers read is any class of torch's.
    if "input_ids" not in (getattr(dataset, "column_names", None) or ()):
        return []
    numbers = range(0, len(dataset), max(1, len(dataset) // _SAMPLE))
    return [int(each) for each in lengths(dataset.select(numbers))]


def _matrices(model: Any) -> tuple[int, int, int]:
    """Return how many weights a token meets in layers' matrices, and the shape of the largest matrix."""
    # Of transformers' models; an encoder of sentence-transformers has none.
    head = getattr(model, "get_output_embeddings", lambda: None)()
    shapes = [
        (int(module.in_features), int(module.out_features))
        for module in model.modules()
        # Of a layer with an adapter the layer itself is a module of its own. Learned positions alone meet
        # the output layer.
        if module is not head and isinstance(module, torch.nn.Linear)
    ]
    largest = max(shapes, key=lambda shape: shape[0] * shape[1], default=(0, 0))
    return sum(width * inner for width, inner in shapes), *largest


def _multiplications(rows: int, width: int, inner: int, args: Any) -> float:
    """Return how many operations a second a product of such matrices does here, by timing some."""
    rows, width, inner = (min(_MAX_SIZE, each) for each in (rows, width, inner))
    kind = torch.bfloat16 if args.bf16 else torch.float32
    # Not random numbers: the training's own must not depend on whether something was timed before it.
    left_matrix = torch.full((rows, width), 0.5, dtype=kind, device=args.device)
    right_matrix = torch.full((width, inner), 0.5, dtype=kind, device=args.device)
    count, start = 0, 0.0
    while not count or time.perf_counter() - start < _SECONDS:
        (left_matrix @ right_matrix)[0, 0].item()  # waits for the device
        if not start:  # the first one warms up
            start = time.perf_counter()
            continue
        count += 1
    return 2 * rows * width * inner * count / (time.perf_counter() - start)
