"""Products of queries with all vectors by torch in bfloat16, on GPUs or a CPU, with a bound of their error.

Whoever searches takes more candidates than it wants and scores them again from the vectors themselves: with
the bound it knows when nothing can be missing (:class:`retrieval.dense.search.FaissIndex`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.lazy import importing
from corag.core.system.devices import choose_device
from corag.core.system.machine import available_memory

_BLOCK_ROWS = 1 << 16  # vectors that are multiplied at once
_SCORE_BYTES = 256 << 20  # most that the scores of a block take
_BFLOAT16 = 2.0**-8  # most that rounding to bfloat16 changes a number, relative to it
_SUMMING = 1e-4  # more than float32 sums of some thousand products of unit vectors are off
_CPU_SHARE, _GPU_SHARE = 0.25, 0.8  # of the memory that is free: the rest of the vectors is read each time


def resolve_devices(text: str) -> list[str]:
    """Return the devices of "cpu", "cuda" (all GPUs that are there), "cuda:1" or "cuda:0,cuda:2".

    Raises :class:`ConfigError` for another name, or a GPU that is not there.
    """
    with importing:
        import torch

    if text == "cuda" and (count := torch.cuda.device_count()):
        return [f"cuda:{number}" for number in range(count)]
    return [choose_device(name.strip(), "retriever.search_device") for name in text.split(",")]


@dataclass
class _Part:
    """Rows on one device: ``blocks`` are (first row, end, tensor), None for one that is read each time."""

    device: Any
    blocks: list[tuple[int, int, Any]] = field(default_factory=list)


class TorchVectors:
    """Vectors, [rows, dimension] of float32 and usually a memory map, spread evenly over devices.

    What fits into 80% of a GPU's free memory, or a quarter of what a CPU has, stays there in bfloat16, half
    the size of the file; the rest is read from the map in every search.
    ``threads``: of torch on the CPU, 0 for its own choice.
    """

    def __init__(self, vectors: NDArray[np.float32], devices: Sequence[str], threads: int = 0) -> None:
        with importing:
            import torch

        self._torch: Any = torch
        self._vectors, self._threads = vectors, threads
        self._longest = self._rounding = 0.0  # of a rounded vector; of what rounding changed
        self._parts: list[_Part] = []
        rows = len(vectors)
        for number, name in enumerate(devices):
            part = _Part(torch.device(name))
            room = _free_bytes(part.device, devices.count(name))
            end = rows * (number + 1) // len(devices)
            for start in range(rows * number // len(devices), end, _BLOCK_ROWS):
                stop = min(end, start + _BLOCK_ROWS)
                block = self._load(start, stop, part.device, measure=True)
                room -= block.nbytes
                part.blocks.append((start, stop, block if room >= 0 else None))
            self._parts.append(part)

    def _load(self, start: int, stop: int, device: Any, measure: bool = False) -> Any:
        """Return rows in bfloat16 on a device, and remember how far off they are."""
        full = self._torch.from_numpy(np.array(self._vectors[start:stop])).to(device)
        block = full.bfloat16()
        if measure:
            values = block.float()
            self._longest = max(self._longest, float(values.norm(dim=1).max()))
            self._rounding = max(self._rounding, float((full - values).norm(dim=1).max()))
        return block

    def search(self, queries: NDArray[np.float32], depth: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the (scores, rows) of highest rough score, [queries, depth], best first.

        ``depth`` is no more than there are rows.
        """
        if self._threads:
            self._torch.set_num_threads(self._threads)  # it belongs to the process, not to the index
        at_once = max(1, _SCORE_BYTES // (4 * _BLOCK_ROWS))
        pieces = [
            self._search_some(queries[start : start + at_once], depth)
            for start in range(0, len(queries), at_once)
        ]
        return np.concatenate([scores for scores, _ in pieces]), np.concatenate([rows for _, rows in pieces])

    def _search_some(
        self, queries: NDArray[np.float32], depth: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        torch = self._torch
        rough = torch.from_numpy(np.ascontiguousarray(queries)).bfloat16()
        # GPUs are given all their work before the first is waited for.
        best = [self._best_of_part(part, rough.to(part.device), depth) for part in self._parts if part.blocks]
        scores = torch.cat([each.cpu() for each, _ in best], 1)
        rows = torch.cat([each.cpu() for _, each in best], 1)
        scores, places = torch.topk(scores, depth, dim=1)
        return scores.numpy(), rows.gather(1, places).numpy()

    def _best_of_part(self, part: _Part, queries: Any, depth: int) -> tuple[Any, Any]:
        torch, best = self._torch, None
        for start, scores in self._products(part, queries):
            scores, rows = torch.topk(scores, min(depth, scores.shape[1]), dim=1)
            rows += start
            if best is not None:
                scores, rows = torch.cat([best[0], scores], 1), torch.cat([best[1], rows], 1)
                scores, places = torch.topk(scores, min(depth, scores.shape[1]), dim=1)
                rows = rows.gather(1, places)
            best = scores, rows
        assert best is not None
        return best

    def _products(self, part: _Part, queries: Any) -> Iterator[tuple[int, Any]]:
        """Yield the first row of each block and its products in float32, [queries, rows of the block]."""
        for start, stop, resident in part.blocks:
            block = self._load(start, stop, part.device) if resident is None else resident
            if part.device.type == "cuda":  # sums in float32 are returned as such; a CPU rounds them
                yield start, self._torch.mm(queries, block.T, out_dtype=self._torch.float32)
            else:
                yield start, (queries @ block.T).float()

    def tolerance(self, queries: NDArray[np.float32], rough: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return by how much rough scores may differ whose true order is the other one, per query.

        |q.v - q'.v'| <= |q - q'||v'| + |q||v - v'|, and both of two scores may be off. ``rough``: the scores
        that were found, best first: a CPU returns them in bfloat16 too.
        """
        exact = self._torch.from_numpy(np.ascontiguousarray(queries))
        change = (exact - exact.bfloat16().float()).norm(dim=1).numpy()
        length = np.linalg.norm(queries, axis=1)
        off = change * self._longest + length * (self._rounding + _SUMMING * self._longest)
        if any(part.device.type == "cpu" for part in self._parts):
            off = off + _BFLOAT16 * (np.abs(rough[:, [0, -1]]).max(1) + off)
        result: NDArray[np.float32] = (2 * off).astype(np.float32)
        return result


def _free_bytes(device: Any, sharers: int) -> float:
    """Return how much of a device's memory may be taken by each of so many."""
    import torch

    if device.type == "cuda":
        return float(_GPU_SHARE * torch.cuda.mem_get_info(device)[0] / sharers)
    return _CPU_SHARE * available_memory() / sharers
