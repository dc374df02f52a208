"""BM25 over a million passages on a laptop: building, opening, searching, beside Pyserini's own batch search.

    python -m benchmarks scale                    a million passages: some minutes, 1 GB of disk
    python -m benchmarks scale --passages 100000

The corpus is the embedded world's. Memory is that of a process of its own for building and one for searching:
``peak``, the most it held at once.
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

from eval.datasets import load_questions
from eval.datasets.world import write_world
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.search.pipeline import open_retriever

K, QUERIES = 10, 400


async def main(passages: int = 1_000_000) -> dict[str, float]:
    """Return seconds, megabytes, queries per second and the ratios to Pyserini's batch search."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        start = time.perf_counter()
        write_world(folder / "world", passages=passages, train=1, dev=1, test=QUERIES)
        figures: dict[str, float] = {"passages": passages, "write_s": time.perf_counter() - start}
        for step in ("build", "search"):
            figures |= await asyncio.to_thread(run_apart, step, folder)
        return figures


def run_apart(step: str, folder: Path) -> dict[str, float]:
    """Do one step of a benchmark in a process of its own, whose memory is then its own too."""
    command = [sys.executable, "-m", "benchmarks.scale", step, str(folder)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


def build(folder: Path) -> dict[str, float]:
    """Build the BM25 index."""
    start = time.perf_counter()
    build_index(IndexConfig([str(folder / "world/corpus.jsonl")], str(folder / "bm25")), lambda _: None)
    return {
        "bm25_build_s": time.perf_counter() - start,
        "bm25_build_peak_mb": memory_mb("VmHWM"),
        "bm25_disk_mb": sum(file.stat().st_size for file in (folder / "bm25").rglob("*")) / 1e6,
    }


def search(folder: Path) -> dict[str, float]:
    """Open the index and search it: one query after another, all at once, and with Pyserini itself."""
    return asyncio.run(_search(folder))


async def _search(folder: Path) -> dict[str, float]:
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


def memory_mb(what: str) -> float:
    """Return this process's memory: "VmRSS" for what it holds now, "VmHWM" for the most that it held."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


if __name__ == "__main__":
    step = {"build": build, "search": search}[sys.argv[1]]
    print(json.dumps(step(Path(sys.argv[2]))))
