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


def test_an_update_has_rows_of_many_lengths_and_a_batch_rows_of_one() -> None:
    lengths = [100 * (1 + number % 4) + number // 100 for number in range(402)]

    order = list(EpochSampler(lengths, 4, 0))

    batches = [[lengths[each] for each in order[start : start + 4]] for start in range(0, 400, 4)]
    updates = [batches[start : start + 4] for start in range(0, 100, 4)]
    assert sorted(order) == list(range(402)) and max(lengths) in batches[0]
    assert sum(max(each) - min(each) < 50 for each in batches) > 90
    assert sum(len({batch[0] // 100 for batch in each}) > 1 for each in updates) > 20
