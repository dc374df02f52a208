"""Searching vectors: flat FAISS one by one and by matrices, torch in bfloat16, and compressed indexes.

    python -m benchmarks search                                                   clustered random vectors
    python -m benchmarks search --vectors passages.npy --queries questions.npy  your own, float32 of length 1

The exact ways search in turn, so that other load on the machine hits all alike, and a speedup is the median
over repeats of the ratio within a repeat. They have to find the same hits and scores to the last bit.
``per_core_s`` are queries per second of CPU time, which other load changes little. ``recall_10`` is against
them.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.config import IndexConfig
from retrieval.dense.build import INDEX
from retrieval.dense.faiss_build import build_faiss
from retrieval.dense.ready_vectors import open_vectors
from retrieval.dense.search import FaissIndex

K, BATCHES = 10, (1, 8, 64, 256, 1_000)
_ONE_BY_ONE = 2**31 - 1  # FAISS compares it with queries times dimension: none of ours reaches it
# By the name of its figures: kind, refine, nprobe. "ivfpq_codes_32" is how the kind was searched before.
_KINDS = {
    "hnsw": ("hnsw", None, 1),
    "hnsw_sq8": ("hnsw_sq8", None, 1),
    "sq8": ("sq8", None, 1),
    "ivfpq_codes_32": ("ivfpq", "none", 32),
    "ivfpq_sq8": ("ivfpq", "sq8", 128),
    "ivfpq_fp16": ("ivfpq", "fp16", 128),
}


async def main(
    passages: int = 100_000,
    vectors: str = "",
    queries: str = "",
    repeats: int = 3,
    threads: int = 0,
    kinds: Sequence[str] = (),
) -> dict[str, float]:
    """Return queries per second, speedups over FAISS as it comes, and recall@10 of some ``kinds``, or all."""
    if vectors:
        rows = np.ascontiguousarray(np.load(vectors, mmap_mode="r"), np.float32)
        texts = np.load(queries) if queries else rows[:: max(1, len(rows) // 1_000)]
        query_vectors = np.ascontiguousarray(texts, np.float32)
    else:
        rows, query_vectors = make_clusters(passages)
    with tempfile.TemporaryDirectory() as scratch:
        return await asyncio.to_thread(_measure, rows, query_vectors, Path(scratch), repeats, threads, kinds)


def _measure(
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    folder: Path,
    repeats: int,
    threads: int,
    kinds: Sequence[str],
) -> dict[str, float]:
    files = []
    for number, some in enumerate(np.array_split(rows, 16)):
        files.append(folder / f"{number:02d}.npy")
        np.save(files[-1], some)
    shards = open_vectors(files, rows.shape[1], "default")
    figures: dict[str, float] = {
        "rows": rows.shape[0],
        "dimension": rows.shape[1],
        "query_count": len(queries),
    }
    exact = _measure_exact(shards, queries, folder, repeats, threads, figures)
    for name in kinds or _KINDS:
        kind, refine, nprobe = _KINDS[name]
        _measure_kind(name, (kind, refine, nprobe, threads), shards, queries, folder / name, exact, figures)
    return figures


def _measure_exact(
    shards: Any,
    queries: NDArray[np.float32],
    folder: Path,
    repeats: int,
    threads: int,
    figures: dict[str, float],
) -> list[set[str]]:
    """Add the figures of the exact ways; return the names of each query's nearest."""
    import faiss

    build_faiss(shards, folder, IndexConfig([], "", kind="dense"))
    by_faiss = FaissIndex(folder / INDEX, str, ef_search=1, nprobe=1, threads=threads)
    by_torch = FaissIndex(folder / INDEX, str, ef_search=1, nprobe=1, threads=threads, devices=["cpu"])
    threshold = faiss.cvar.distance_compute_blas_threshold

    def one_by_one(some: NDArray[np.float32]) -> Any:
        faiss.cvar.distance_compute_blas_threshold = _ONE_BY_ONE
        try:
            return by_faiss.search(some, K)
        finally:
            faiss.cvar.distance_compute_blas_threshold = threshold

    ways: dict[str, Callable[[NDArray[np.float32]], Any]] = {
        "faiss_one_by_one": one_by_one,
        "faiss_blas": lambda some: by_faiss.search(some, K),
        "torch_bfloat16": lambda some: by_torch.search(some, K),
    }
    import torch

    if gpus := [f"cuda:{number}" for number in range(torch.cuda.device_count())]:
        on_gpus = FaissIndex(folder / INDEX, str, ef_search=1, nprobe=1, devices=gpus)
        ways["torch_gpus"] = partial(on_gpus.search, k=K)
    for size in BATCHES:
        some, hits = queries[:size], by_faiss.search(queries[:size], K)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        cores: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, search in ways.items():
                start, cpu_start = time.perf_counter(), time.process_time()
                equal = search(some) == hits
                seconds[name].append(time.perf_counter() - start)
                cores[name].append(time.process_time() - cpu_start)
                assert equal, f"{name} finds others than FAISS by matrices"
        for name, times in seconds.items():
            figures[f"{name}_{size}_queries_per_s"] = size / statistics.median(times)
            figures[f"{name}_{size}_per_core_s"] = size / statistics.median(cores[name])
            ratios = (before / now for before, now in zip(seconds["faiss_one_by_one"], times, strict=True))
            figures[f"{name}_{size}_speedup"] = statistics.median(ratios)
    figures["exact_recall_10"] = 1.0  # or the assertion above had failed
    hits = by_faiss.search(queries, K)
    by_faiss.close()
    by_torch.close()
    return [{name for name, _ in matches} for matches in hits]


def _measure_kind(
    name: str,
    options: tuple[Any, Any, int, int],
    shards: Any,
    queries: NDArray[np.float32],
    folder: Path,
    exact: list[set[str]],
    figures: dict[str, float],
) -> None:
    folder.mkdir()
    kind, refine, nprobe, threads = options
    config = IndexConfig([], "", kind="dense", faiss=kind, refine=refine, threads=threads)
    build_faiss(shards, folder, config)
    index = FaissIndex(folder / INDEX, str, ef_search=128, nprobe=nprobe, threads=threads)
    start, cpu_start = time.perf_counter(), time.process_time()
    hits = index.search(queries, K)
    figures[f"{name}_queries_per_s"] = len(queries) / (time.perf_counter() - start)
    figures[f"{name}_per_core_s"] = len(queries) / (time.process_time() - cpu_start)
    common_count = sum(len({row for row, _ in some} & true) for some, true in zip(hits, exact, strict=True))
    figures[f"{name}_recall_10"] = common_count / (K * len(queries))
    figures[f"{name}_disk_mb"] = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    index.close()


def make_clusters(count: int, dimension: int = 384) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return unit vectors around centres, as passages lie around topics, and 1,000 queries near some."""
    chance = np.random.default_rng(0)
    centres = 0.7 * chance.standard_normal((200, dimension), dtype=np.float32)
    noise = chance.standard_normal((count, dimension), dtype=np.float32)
    rows = _unit(centres[chance.integers(0, 200, count)] + noise)
    near = rows[chance.integers(0, count, 1_000)]
    return rows, _unit(near + 0.03 * chance.standard_normal(near.shape, dtype=np.float32))


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)
