"""The order in which rows are trained on."""

from __future__ import annotations

import random

import torch

from training.trainer import EpochSampler


def test_the_order_of_rows_depends_on_seed_and_epoch_alone() -> None:
    draws = random.Random(0)
    lengths = [draws.randrange(10, 500) for _ in range(40)]

    def order(seed: int, epoch: int) -> list[int]:
        torch.rand(3)  # the global generator is somewhere else every time
        sampler = EpochSampler(lengths, 4, seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(1, 2) == order(1, 2) and sorted(order(1, 2)) == list(range(40))
    assert order(1, 2) != order(1, 3) != order(2, 3)
