"""How much an index that is not exact finds of the nearest vectors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.dense.build import INDEX
from retrieval.dense.ready_vectors import ReadyVectors
from retrieval.dense.search import FaissIndex

_ROUNDING = 1e-5  # more than two ways of summing in float32 differ, of what is summed
_SAMPLE_SIZE, _K = 1_000, 10  # vectors that are searched for, and how many nearest of each


def measure_recall(source: ReadyVectors, folder: Path, config: IndexConfig) -> str:
    """Return a sentence on how many of the nearest vectors a new index finds, "" if it is too small to say.

    A sample of its own vectors, spread evenly, is searched as a search does by default, and compared with
    an exact search of all; the vector itself does not count.
    """
    if source.rows <= _K:
        return ""
    rows = np.arange(0, source.rows, max(1, source.rows // _SAMPLE_SIZE))
    queries = np.concatenate([np.asarray(part) for part in _pick(source, rows)])
    search = RetrieverConfig(["-"])
    index = FaissIndex(
        folder / INDEX,
        str,
        ef_search=search.ef_search,
        nprobe=search.nprobe,
        threads=config.threads,
    )
    try:
        hits = [[int(name) for name, _ in matches] for matches in index.search(queries, _K + 1)]
    finally:
        index.close()
    best, nearest = _search_exactly(source, queries, _K + 1)
    unique_rows = np.unique(np.concatenate([np.array(row, np.int64) for row in hits]))
    vectors = np.concatenate(list(_pick(source, unique_rows)))
    hit_count = 0
    for position, row in enumerate(rows.tolist()):
        # By scores: of equal vectors it does not matter which are found.
        least = best[position][nearest[position] != row][:_K][-1]
        least -= _ROUNDING * max(1.0, abs(least))
        others = [each for each in hits[position] if each != row][:_K]
        hit_count += int((vectors[np.searchsorted(unique_rows, others)] @ queries[position] >= least).sum())
    recall = hit_count / (_K * len(rows))
    graph = f" (ef_search {search.ef_search})"
    how = {"hnsw": graph, "hnsw_sq8": graph, "ivfpq": f" (nprobe {search.nprobe})"}
    return (
        f"recall@{_K} of {len(rows):,} of its own vectors against exact search: "
        f"{recall:.3f}{how.get(config.faiss or '', '')}."
    )


def _pick(source: ReadyVectors, rows: NDArray[np.int64]) -> Iterable[NDArray[np.float32]]:
    start = 0
    for vectors in source:
        here = rows[(rows >= start) & (rows < start + len(vectors))] - start
        yield np.asarray(vectors[here])
        start += len(vectors)


def _search_exactly(
    source: ReadyVectors, queries: NDArray[np.float32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return (scores, rows) of each query's k nearest, [queries, k], shard after shard."""
    import faiss

    scores = np.full((len(queries), k), -np.inf, np.float32)
    rows = np.full((len(queries), k), -1, np.int64)
    start = 0
    for vectors in source:
        block = np.ascontiguousarray(vectors)
        some, near = faiss.knn(queries, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        scores = np.concatenate([scores, some], 1)
        rows = np.concatenate([rows, near + start], 1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, rows = np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
        start += len(block)
    return scores, rows
