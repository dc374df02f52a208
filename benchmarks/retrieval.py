"""How fast many awaiting callers are served in batches, against a loop and Pyserini's batch_search.

"loop" is what most toolkits do: Pyserini's ``search`` for one query, then its ``doc`` for each hit. "careful
loop" reads the documents that came with the hits instead, "own loop" awaits our retriever query after query.
Every contender ends with the passages of all hits in hand, but for "batch_search without passages", which
leaves them in Java: a bound, not a use. "Chains" are 64 callers whose next query waits for the hits of the
one before, as a method's hops do, and one query in sixteen has 300 words: with two batches under way, as many
cores have them, and a batch at a time. Each repeat times all of them in turn, and a ratio is the median over
repeats of the ratio within a repeat, so that other load on the machine hits both sides alike. Nothing is
cached between repeats.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from corag.core.protocols import Retriever
from corag.core.types import Hit, Passage
from retrieval.config import BM25_PRESETS, IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.lucene.bm25 import LuceneSearcher
from retrieval.search.batched import BatchedRetriever
from retrieval.search.pipeline import open_retriever

K = 10
_CHAINS = 64
_WARM_UP_ROUNDS = 3
_STOP_WORDS = "the of and in a to was is for on as with by at from an it his that are".split()


async def main(
    passages: int = 50_000, queries: int = 1_000, threads: int = 2, repeats: int = 5
) -> dict[str, float]:
    """Return queries per second of each contender, and how much faster the awaiting callers are than each."""
    with tempfile.TemporaryDirectory() as scratch:
        texts = Filler(seed=0)
        corpus = Path(scratch, "corpus.jsonl")
        corpus.write_text(
            "".join(json.dumps(passage) + "\n" for passage in texts.passages(passages)), encoding="utf-8"
        )
        folder = Path(scratch, "index")
        build_index(IndexConfig(corpus=[str(corpus)], out=str(folder), threads=threads), lambda _: None)
        retriever = await open_retriever(RetrieverConfig(index=[str(folder)], threads=threads, cache_size=0))
        batch = texts.queries(queries)
        seconds = await _race(_contenders(retriever, str(folder), batch, threads), repeats)
        # After the others, which further searchers and long queries slow down.
        double, single = (
            BatchedRetriever(LuceneSearcher(folder, BM25_PRESETS["pyserini"], threads), "", folder, at_once=n)
            for n in (2, 1)
        )
        unlike = texts.unlike(queries)
        chains = {
            "chains, two batches under way": _chains(double, unlike),
            "chains, a batch at a time": _chains(single, unlike),
        }
        seconds |= await _race(chains, repeats)
        await double.close()
        await retriever.close()
        await single.close()

    def ratio(name: str, ours: str = "awaiting callers") -> float:
        pairs = zip(seconds[name], seconds[ours], strict=True)
        return statistics.median(theirs / our for theirs, our in pairs)

    speeds = {
        f"queries per second, {name}": len(batch) / statistics.median(times)
        for name, times in seconds.items()
    }
    return speeds | {
        "speedup_over_loop": ratio("loop"),
        "speedup_over_careful_loop": ratio("careful loop"),
        "speedup_over_own_loop": ratio("own loop"),
        "ratio_to_batch_search": ratio("batch_search"),
        "ratio_to_batch_search_without_passages": ratio("batch_search without passages"),
        "speedup_by_two_batches_under_way": ratio(
            "chains, a batch at a time", "chains, two batches under way"
        ),
    }


def _chains(retriever: Retriever, queries: Sequence[str]) -> Callable[[], Awaitable[object]]:
    async def chain(number: int) -> None:
        for query in queries[number::_CHAINS]:
            await retriever.search(query, K)

    async def chains() -> object:
        return await asyncio.gather(*map(chain, range(_CHAINS)))

    return chains


def _contenders(
    retriever: Retriever, index: str, queries: Sequence[str], threads: int
) -> dict[str, Callable[[], Awaitable[object]]]:
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(index)
    numbers = [str(number) for number in range(len(queries))]

    async def loop() -> object:
        return [
            [(searcher.doc(hit.docid).raw(), hit.score) for hit in searcher.search(query, K)]
            for query in queries
        ]

    async def careful_loop() -> object:
        return [_with_passages(searcher.search(query, K)) for query in queries]

    async def batch_search() -> object:
        hits = searcher.batch_search(list(queries), numbers, K, threads)
        return [_with_passages(hits[number]) for number in numbers]

    async def batch_search_without_passages() -> object:
        return searcher.batch_search(list(queries), numbers, K, threads)

    async def corag_loop() -> object:
        return [await retriever.search(query, K) for query in queries]

    async def awaiting_callers() -> object:
        return await asyncio.gather(*(retriever.search(query, K) for query in queries))

    return {
        "loop": loop,
        "careful loop": careful_loop,
        "own loop": corag_loop,
        "batch_search": batch_search,
        "batch_search without passages": batch_search_without_passages,
        "awaiting callers": awaiting_callers,
    }


def _with_passages(hits: Sequence[Any]) -> list[Hit]:
    """Read the stored passages of Pyserini's hits, without a second search for each (``doc(id)``)."""
    results = []
    for hit in hits:
        record = orjson.loads(hit.lucene_document.get("raw"))
        results.append(Hit(Passage(record["id"], record["title"], record["text"]), hit.score))
    return results


async def _race(
    contenders: dict[str, Callable[[], Awaitable[object]]], repeats: int
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(_WARM_UP_ROUNDS + repeats):  # Java compiles what is hot during the first rounds
        for name, contender in contenders.items():
            start = time.perf_counter()
            await contender()
            if round_number >= _WARM_UP_ROUNDS:
                seconds[name].append(time.perf_counter() - start)
    return seconds


class Filler:
    """Encyclopaedia-like texts: two fifths stop words, else some 60,000 words, Zipf-like, and rare names."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        words = {self._make_word(self._random.randint(2, 5)) for _ in range(70_000)}
        self._words = sorted(words)
        self._random.shuffle(self._words)
        self._weights = list(itertools.accumulate(1 / (rank + 30) for rank in range(len(self._words))))
        self._requests: list[tuple[str, str]] = []

    def passages(self, count: int) -> Iterator[dict[str, str]]:
        """Stream records of id, title (a name of two words) and text of 40 to 120 words."""
        for number in range(count):
            title = f"{self._make_word(3).title()} {self._make_word(4).title()}"
            text = " ".join([title, *self._sentence(self._random.randint(40, 120))])
            self._requests.append((title, text))
            yield {"id": f"p{number}", "title": title, "text": text}

    def queries(self, count: int) -> list[str]:
        """Return questions of some six content words from a passage, half of them with its title."""
        questions = []
        for _ in range(count):
            title, text = self._random.choice(self._requests)
            words = self._random.sample(text.split(), 10)
            questions.append(" ".join(["who was the", *words, title if self._random.random() < 0.5 else ""]))
        return questions

    def unlike(self, count: int) -> list[str]:
        """Return questions of unlike cost: every sixteenth, by chance, has 300 words more."""
        return [
            " ".join([query, *(self._sentence(300) if self._random.random() < 1 / 16 else ())])
            for query in self.queries(count)
        ]

    def _sentence(self, length: int) -> list[str]:
        content = self._random.choices(self._words, cum_weights=self._weights, k=length)
        return [self._random.choice(_STOP_WORDS) if self._random.random() < 0.4 else word for word in content]

    def _make_word(self, syllables: int) -> str:
        letters = (
            self._random.choice("bcdfghklmnprstvw") + self._random.choice("aeiou") for _ in range(syllables)
        )
        return "".join(letters)
