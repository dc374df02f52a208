"""Exact search among flat vectors: in blocks, and deeper only where it is needed, it finds the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corag.core.errors import ConfigError
from retrieval.dense import search, torch_search
from retrieval.dense.search import FaissIndex
from retrieval.dense.torch_search import resolve_devices
from tests.messages import raises_message


def flat_index(vectors: NDArray[np.float32], file: Path, devices: Sequence[str] = ()) -> FaissIndex:
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(file))
    return FaissIndex(file, str, ef_search=1, nprobe=1, threads=1, devices=devices)


def obvious(vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int) -> list[Any]:
    """Everything with everything, the earlier of equal ones first."""
    found = []
    for query in queries:
        scores = np.multiply(vectors, query, dtype=np.float64).sum(-1).astype(np.float32)
        best = np.lexsort((np.arange(len(vectors)), -scores))[:k]
        found.append([(str(row), float(scores[row])) for row in best])
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("devices", [(), ("cpu", "cpu", "cpu")])
def test_exact_search_is_the_obvious_one(
    seed: int, devices: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_search, "_BLOCK_ROWS", 37)
    monkeypatch.setattr(torch_search, "available_memory", lambda: 2_000 * seed)  # some stay in the file
    chance = np.random.default_rng(seed)
    rows, dimension = int(chance.integers(1, 400)), int(chance.choice([1, 3, 24, 200]))
    vectors = chance.standard_normal((rows, dimension)).astype(np.float32)
    copies = chance.random(rows) < chance.choice([0, 0.3, 0.95])  # ties, up to nearly all
    vectors[copies] = vectors[chance.integers(0, min(3, rows), int(copies.sum()))]
    queries = chance.standard_normal((int(chance.integers(1, 40)), dimension)).astype(np.float32)
    index = flat_index(vectors, tmp_path / "index", devices)
    for block in (1, 5_000, 64 << 20):
        monkeypatch.setattr(search, "_BLOCK_BYTES", block)
        for k in (1, 7, rows, rows + 5):
            assert index.search(queries, k) == obvious(vectors, queries, min(k, rows))


def test_exact_search_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr(search, "_BLOCK_BYTES", 1 << 20)
    vectors = np.random.default_rng(1).standard_normal((500, 256)).astype(np.float32)
    index = flat_index(vectors, tmp_path / "index")
    tracemalloc.start()
    index.search(vectors, 100)  # 500 queries, 208 deep: 400 MB at once
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


def test_near_ties_are_told_apart_in_bfloat16_too(tmp_path: Path) -> None:
    """Thousands of vectors whose products differ by less than bfloat16 can say."""
    chance = np.random.default_rng(3)
    vectors = np.ones((4_000, 64), np.float32) + chance.uniform(0, 1e-3, (4_000, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[:5] + np.float32(1e-4)
    index = flat_index(vectors, tmp_path / "index", ["cpu", "cpu"])
    assert index.search(queries, 10) == obvious(vectors, queries, 10)


@pytest.mark.parametrize("name", ["gpu", "cuda:93"])
def test_a_device_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with raises_message(ConfigError):
        resolve_devices(name)


def test_all_gpus_are_taken_or_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert resolve_devices("cuda") == ["cuda:0", "cuda:1", "cuda:2"]
    assert resolve_devices("cuda:2, cuda:0") == ["cuda:2", "cuda:0"]
