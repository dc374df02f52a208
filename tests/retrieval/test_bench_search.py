"""The benchmark of searches compares ways that find the same, and says what the others miss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import main, make_clusters


@pytest.mark.slow
async def test_search_is_measured_on_vectors_of_ones_own(tmp_path: Path) -> None:
    rows, queries = make_clusters(3_000, 64)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "queries.npy", queries[:64])
    files = {name: str(tmp_path / f"{name}.npy") for name in ("rows", "queries")}
    figures = await main(
        vectors=files["rows"], queries=files["queries"], repeats=1, threads=1, kinds=("sq8", "hnsw_sq8")
    )
    assert (figures["rows"], figures["query_count"]) == (3_000, 64)
    assert figures["sq8_recall_10"] > 0.9 and figures["hnsw_sq8_recall_10"] > 0.8
    assert figures["torch_bfloat16_64_speedup"] > 0
