"""BM25 over a million passages on a laptop: building, opening, searching, beside Pyserini's own batch search.

    corag bench scale                        a million passages: some minutes, 1 GB of disk
    corag bench scale --passages 100000

The corpus is the embedded world's. Memory is that of a process of its own for building and one for searching:
``peak``, the most it held at once. The dense side is measured over clustered random vectors of 64 dimensions,
since encoding a million passages takes hours on a CPU: ``recall_10`` is against an exact search of the same
vectors, and says how the index behaves, not how an encoder does.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

K, QUERIES = 10, 400
_DIMENSION, _CLUSTERS, _PQ_BYTES = 64, 2_000, 32


async def main(passages: int = 1_000_000) -> dict[str, float]:
    """Return seconds, megabytes, queries per second and the ratios to Pyserini's batch search."""
    from eval.datasets.world import write_world

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        start = time.perf_counter()
        write_world(folder / "world", passages=passages, train=1, dev=1, test=QUERIES)
        figures: dict[str, float] = {"passages": passages, "write_s": time.perf_counter() - start}
        for step in ("build", "search", "dense"):
            figures |= await asyncio.to_thread(run_apart, "scale", step, folder, passages)
        return figures


def run_apart(bench: str, step: str, folder: Path, passages: int) -> dict[str, float]:
    """Do one step of a benchmark in a process of its own, whose memory is then its own too."""
    command = [sys.executable, "-m", f"benchmarks.{bench}", step, str(folder), str(passages)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


def build(folder: Path, passages: int) -> dict[str, float]:
    """Build the BM25 index."""
    from retrieval.config import IndexConfig
    from retrieval.index.build import build_index

    start = time.perf_counter()
    build_index(IndexConfig([str(folder / "world/corpus.jsonl")], str(folder / "bm25")), lambda _: None)
    return {
        "bm25_build_s": time.perf_counter() - start,
        "bm25_build_peak_mb": memory_mb("VmHWM"),
        "bm25_disk_mb": sum(file.stat().st_size for file in (folder / "bm25").rglob("*")) / 1e6,
    }


def search(folder: Path, passages: int) -> dict[str, float]:
    """Open the index and search it: one query after another, all at once, and with Pyserini itself."""
    return asyncio.run(_search(folder))


async def _search(folder: Path) -> dict[str, float]:
    from eval.datasets import load_questions
    from retrieval.config import RetrieverConfig
    from retrieval.search.pipeline import open_retriever

    queries = [question.text for question in load_questions(str(folder / "world/test.jsonl"))]
    opening_start = time.perf_counter()
    retriever = await open_retriever(RetrieverConfig([str(folder / "bm25")], threads=2, cache_size=0))
    await retriever.search(queries[0], K)
    open_seconds = time.perf_counter() - opening_start
    seconds = []
    for query in queries:
        start = time.perf_counter()
        await retriever.search(query, K)
        seconds.append(time.perf_counter() - start)
    resident = memory_mb("VmRSS")
    # Only now: imported before our own start of Java, Pyserini would take whichever Java it finds.
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(folder / "bm25"))
    ids = [str(number) for number in range(len(queries))]
    ratios, with_texts, batches = [], [], []
    for _ in range(5):  # in turn, so that other load hits both alike
        start = time.perf_counter()
        await asyncio.gather(*(retriever.search(query, K) for query in queries))
        batches.append(time.perf_counter() - start)
        start = time.perf_counter()
        by_id = searcher.batch_search(queries, ids, K, 2)
        ratios.append((time.perf_counter() - start) / batches[-1])
        for hits in by_id.values():  # what our searches have returned already
            for hit in hits:
                hit.lucene_document.get("raw")
        with_texts.append((time.perf_counter() - start) / batches[-1])
    await retriever.close()
    return {
        "bm25_open_s": open_seconds,
        "bm25_resident_mb": resident,
        "bm25_p95_ms": 1000 * statistics.quantiles(seconds, n=20)[-1],
        "bm25_queries_per_s": len(seconds) / sum(seconds),
        "bm25_batched_queries_per_s": len(queries) / statistics.median(batches),
        "ratio_to_batch_search": statistics.median(with_texts),
        "ratio_to_batch_search_without_passages": statistics.median(ratios),
    }


def dense(folder: Path, passages: int) -> dict[str, float]:
    """Build and search IVF-PQ and HNSW over clustered random vectors, memory-mapped as an index is."""
    import faiss

    from retrieval.dense.search import FaissIndex

    vectors = _make_clusters(passages)
    chance = np.random.default_rng(1)
    noise = 0.02 * chance.standard_normal(_DIMENSION)
    queries = _unit(vectors[chance.integers(0, passages, QUERIES)] + noise)
    flat = faiss.IndexFlatIP(_DIMENSION)
    flat.add(vectors)
    exact = flat.search(queries, K)[1]
    figures: dict[str, float] = {}
    lists = max(1, min(4 * int(passages**0.5), passages // 39))
    coarse = faiss.IndexFlatIP(_DIMENSION)
    kinds: dict[str, Any] = {
        "ivfpq": faiss.IndexIVFPQ(coarse, _DIMENSION, lists, _PQ_BYTES, 8, faiss.METRIC_INNER_PRODUCT),
        "hnsw": faiss.IndexHNSWFlat(_DIMENSION, 32, faiss.METRIC_INNER_PRODUCT),
    }
    for name, index in kinds.items():
        start = time.perf_counter()
        index.train(vectors[:: max(1, passages // (64 * max(lists, 256)))])
        index.add(vectors)
        figures[f"{name}_build_s"] = time.perf_counter() - start
        faiss.write_index(index, str(folder / name))
        figures[f"{name}_disk_mb"] = (folder / name).stat().st_size / 1e6
    del vectors, flat, coarse, index
    kinds.clear()
    for name in ("ivfpq", "hnsw"):
        before = memory_mb("VmRSS")
        mapped_index = FaissIndex(folder / name, str, ef_search=128, nprobe=32, threads=2)
        start = time.perf_counter()
        neighbours = mapped_index.search(queries, K)
        figures[f"{name}_queries_per_s"] = len(queries) / (time.perf_counter() - start)
        figures[f"{name}_resident_mb"] = memory_mb("VmRSS") - before
        common_count = sum(len({int(row) for row, _ in hits} & set(rows.tolist())) for hits, rows in zip(
            neighbours, exact, strict=True
        ))  # fmt: skip
        figures[f"{name}_recall_10"] = common_count / exact.size
        mapped_index.close()
    return figures


def _make_clusters(count: int) -> NDArray[np.float32]:
    """Return unit vectors around random centres, as passages lie around topics."""
    chance = np.random.default_rng(0)
    centres = chance.standard_normal((_CLUSTERS, _DIMENSION), dtype=np.float32)
    noise = chance.standard_normal((count, _DIMENSION), dtype=np.float32)
    return _unit(centres[chance.integers(0, _CLUSTERS, count)] + 0.7 * noise)


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def memory_mb(what: str) -> float:
    """Return this process's memory: "VmRSS" for what it holds now, "VmHWM" for the most that it held."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


if __name__ == "__main__":
    step = {"build": build, "search": search, "dense": dense}[sys.argv[1]]
    print(json.dumps(step(Path(sys.argv[2]), int(sys.argv[3]))))
