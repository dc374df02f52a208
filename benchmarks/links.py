"""Links between titles: making the table of a million titles, and what a search costs that follows links.

    corag bench links                        a million passages: some minutes, 1 GB of disk
    corag bench links --passages 50000

``titles_*``: a table of a million titles as Wikipedia's are, with brackets and words that many share, in a
process of its own. The corpus that is searched is the embedded world's. Its questions are searched in turn
without and with ``--retriever.links titles``, one after another, with five hits each, so that other load hits
both alike; ``*_found`` is the share of the gold passages among the hits, ``*_cpu_ms`` the processor's time.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks.scale import QUERIES, memory_mb, run_apart

K, _WARM_UP, _TITLES = 5, 100, 1_000_000


async def main(passages: int = 1_000_000) -> dict[str, float]:
    """Return seconds and megabytes of a table, milliseconds of a search, and what it found."""
    from eval.datasets.world import write_world

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_world(folder / "world", passages=passages, train=1, dev=1, test=QUERIES)
        figures: dict[str, float] = {"passages": passages}
        for step in ("make", "open"):
            figures |= await asyncio.to_thread(run_apart, "links", step, folder, _TITLES)
        figures |= await asyncio.to_thread(run_apart, "scale", "build", folder, passages)
        for step in ("first_opening", "search"):
            figures |= await asyncio.to_thread(run_apart, "links", step, folder, passages)
        return figures


def make(folder: Path, titles: int) -> dict[str, float]:
    """Make the table of many titles, and save it."""
    from corag.core.types import Passage
    from retrieval.search.titles import TitleTable

    passages = [Passage("", title, "") for title in _titles(titles)]
    before, start = memory_mb("VmHWM"), time.perf_counter()
    table = TitleTable.build(passages)
    figures = {"titles_make_s": time.perf_counter() - start}
    table.save(folder / "titles.npy")
    return figures | {
        "titles": titles,
        "titles_make_peak_mb": memory_mb("VmHWM") - before,
        "titles_disk_mb": (folder / "titles.npy").stat().st_size / 1e6,
    }


def open_table(folder: Path, titles: int) -> dict[str, float]:
    """Open that table, and look through a text that mentions 50 of the titles."""
    from retrieval.search.titles import TitleTable

    text = " and ".join(islice(_titles(titles), 50))
    before, start = memory_mb("VmRSS"), time.perf_counter()
    table = TitleTable.read(folder / "titles.npy")
    mentions = table.find(text)
    figures = {"titles_open_s": time.perf_counter() - start, "titles_mentioned": len(mentions)}
    start = time.process_time()
    for _ in range(200):
        table.find(text)
    return figures | {
        "titles_find_ms": 5 * (time.process_time() - start),
        "titles_open_mb": memory_mb("VmRSS") - before,
    }


def _titles(count: int) -> Iterator[str]:
    """Yield titles of one to six words, a third of them with brackets: names, works, places, lists."""
    chance = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstv" for b in ("a", "e", "i", "o", "un", "er", "al", "in")]
    words = ["".join(chance.choices(syllables, k=chance.randint(2, 4))).title() for _ in range(150_000)]
    names = ["{} {}", "{} {} {}", "{}, {}", "{} {} (footballer)"]
    shapes = [*names, "The {} of {}", "{} ({} film)", "List of {} in {}", "{} {} of the {} {}", "{} ({})"]
    for number in range(count):
        shape = shapes[number % len(shapes)]
        # The square: some words stand in thousands of titles, most in a few.
        yield shape.format(*(words[int(chance.random() ** 2 * len(words))] for _ in range(shape.count("{}"))))


def first_opening(folder: Path, passages: int) -> dict[str, float]:
    """Open the index with links for the first time, which makes its table out of its passages, and again."""
    from retrieval.search.titles import StoredTitles

    figures = {}
    for name in ("first_opening_s", "next_opening_s"):
        start = time.perf_counter()
        StoredTitles(folder / "bm25").close()
        figures[name] = time.perf_counter() - start
    return figures


def search(folder: Path, passages: int) -> dict[str, float]:
    """Search for every question without and with links."""
    return asyncio.run(_search(folder))


async def _search(folder: Path) -> dict[str, float]:
    from eval.datasets import load_questions
    from retrieval.config import RetrieverConfig
    from retrieval.search.pipeline import open_retriever

    questions = load_questions(str(folder / "world/test.jsonl"))
    retrievers = {
        "plain": await open_retriever(RetrieverConfig([str(folder / "bm25")], cache_size=0)),
        "links": await open_retriever(RetrieverConfig([str(folder / "bm25")], links="titles", cache_size=0)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in retrievers}
    cpu: dict[str, list[float]] = {name: [] for name in retrievers}
    shares: dict[str, list[float]] = {name: [] for name in retrievers}
    for number, question in enumerate([*questions[:_WARM_UP], *questions]):
        for name, retriever in retrievers.items():
            start, cpu_start = time.perf_counter(), time.process_time()
            hits = await retriever.search(question.text, K)
            wall_seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
            if number >= _WARM_UP:
                gold = {*question.supporting}
                seconds[name].append(wall_seconds)
                cpu[name].append(cpu_seconds)
                shares[name].append(len(gold & {hit.passage.id for hit in hits}) / len(gold))
    for retriever in retrievers.values():
        await retriever.close()
    figures: dict[str, float] = {}
    for name, times in seconds.items():
        figures |= {
            f"{name}_p50_ms": 1000 * statistics.median(times),
            f"{name}_p95_ms": 1000 * statistics.quantiles(times, n=20)[-1],
            f"{name}_cpu_ms": 1000 * statistics.median(cpu[name]),
            f"{name}_found": statistics.mean(shares[name]),
        }
    return figures | {"p50_ratio": figures["links_p50_ms"] / figures["plain_p50_ms"]}


if __name__ == "__main__":
    step = {"make": make, "open": open_table, "first_opening": first_opening, "search": search}[sys.argv[1]]
    print(json.dumps(step(Path(sys.argv[2]), int(sys.argv[3]))))
