"""Retrievers around retrievers, in the order in which :func:`retrieval.open.open_retriever` puts them.

BatchedRetriever    one index: who waits at the same time is searched in one batch
FusedRetriever      several indexes as one, by reciprocal rank
LinkedRetriever     the hits and what their texts mention, in retrieval/linked.py
RerankedRetriever   the hits in a cross-encoder's order
PartsRetriever      the parts of one index as the whole
CachedRetriever     never search for the same query twice
"""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Sequence
from typing import Protocol

from corag.core.batching import MicroBatcher
from corag.core.errors import BackendError, ConfigError, SearchFailedError
from corag.core.fusion import fuse
from corag.core.gather import gather
from corag.core.protocols import CachedHits, NotedHits, Retriever, search_note
from corag.core.request_cache import RequestCache
from corag.core.seeds import stable_hash
from corag.core.types import Hit, Passage
from retrieval.dense.placement import Placement
from retrieval.index_manifest import IndexPart
from retrieval.rerankers import ScoresOrError, open_reranker
from retrieval.title_links import StoredTitles

HitsOrError = Sequence[Hit] | SearchFailedError


def with_note(hits: Sequence[Hit], note: str) -> Sequence[Hit]:
    """Return hits with a note to them, "" for none."""
    return NotedHits(hits, note) if note else hits


_MAX_BATCH = 1024
_MAX_RERANKED_QUERIES = 64  # each brings as many pairs as it has hits, so a batch is thousands of pairs


class BatchSearcher(Protocol):
    """A search over one index, called with whole batches: searches from one thread, look-ups from another.

    Searches come from as many threads as ``at_once`` of :class:`BatchedRetriever` says.
    """

    def search(self, queries: Sequence[str], k: int) -> Sequence[HitsOrError]:
        """Return for each query up to k hits, best first, or the error of that query alone."""
        ...

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        ...

    def close(self) -> None:
        """Free the index. Safe to call twice."""
        ...


class BatchedRetriever:
    """A :class:`corag.core.protocols.Retriever` over a :class:`BatchSearcher`, which likes batches.

    ``fingerprint`` identifies corpus, index settings and encoder. ``part``: which part of an index it is, if
    it is not a whole one. ``at_once``: batches that the searcher takes at the same time.
    """

    def __init__(
        self, searcher: BatchSearcher, fingerprint: str, part: IndexPart | None = None, at_once: int = 1
    ) -> None:
        self.fingerprint = fingerprint
        self.part = part
        self.titles: StoredTitles | None = None  # set by who opens it, where links are followed
        self._searcher = searcher
        # Threads of their own: a look-up of passages by id does not wait behind a long batch of searches.
        self._searches = MicroBatcher(
            self._search_batch, max_batch=_MAX_BATCH, name="search", at_once=at_once
        )
        self._lookups = MicroBatcher(self._look_up_batch, max_batch=_MAX_BATCH, name="passages")
        self._closed = False

    @property
    def searcher(self) -> BatchSearcher:
        """What searches."""
        return self._searcher

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first. Raises :class:`SearchFailedError` if this query is refused."""
        self._refuse_if_closed()
        if not query.strip():
            return ()
        outcome = await self._searches.submit((query, k))
        if isinstance(outcome, SearchFailedError):
            raise outcome
        return outcome

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        self._refuse_if_closed()
        return await self._lookups.submit(ids) if ids else ()

    async def close(self) -> None:
        """Free the index."""
        if not self._closed:
            self._closed = True
            # The threads end before the index does: they may be in the middle of a batch.
            await asyncio.to_thread(self._searches.close)
            await asyncio.to_thread(self._lookups.close)
            self._searcher.close()

    def close_unused(self) -> None:
        """Free an index that was never searched, where nothing can be awaited."""
        self._closed = True
        self._searches.close()
        self._lookups.close()
        self._searcher.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise BackendError("this index was closed: open it again with open_retriever.")

    def _search_batch(self, items: Sequence[tuple[str, int]]) -> Sequence[HitsOrError]:
        # One batch per distinct k, so that one deep search does not make the others deep.
        outcomes: list[HitsOrError] = [()] * len(items)
        for depth in sorted({k for _, k in items}):
            places = [position for position, (_, k) in enumerate(items) if k == depth]
            batch_outcomes = self._searcher.search([items[position][0] for position in places], depth)
            for position, outcome in zip(places, batch_outcomes, strict=True):
                outcomes[position] = outcome
        return outcomes

    def _look_up_batch(self, items: Sequence[Sequence[str]]) -> Sequence[Sequence[Passage]]:
        by_id = self._searcher.passages(
            list(dict.fromkeys(identifier for ids in items for identifier in ids))
        )
        return [tuple(by_id[identifier] for identifier in ids if identifier in by_id) for ids in items]


class FusedRetriever:
    """Several retrievers as one, by reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009).

    Each is searched ``depth`` deep at the same time, deeper if more is asked for: a passage that two of them
    rank 50th shall beat what one ranks 30th.
    """

    def __init__(self, retrievers: Sequence[Retriever], *, depth: int, rrf_k: int) -> None:
        self._retrievers = tuple(retrievers)
        self._depth = depth
        self._rrf_k = rrf_k
        inner = "|".join(each.fingerprint for each in retrievers)
        self.fingerprint = stable_hash(f"rrf|{depth}|{rrf_k}|{inner}")

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first; scores are sums of reciprocal ranks."""
        depth = max(k, self._depth)
        rankings = await asyncio.gather(*(each.search(query, depth) for each in self._retrievers))
        return with_note(fuse(rankings, self._rrf_k)[:k], search_note(*rankings))

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, each from the first index that has it, without unknown ones."""
        passages_by_index = await asyncio.gather(*(each.passages(ids) for each in self._retrievers))
        by_id = {passage.id: passage for passages in reversed(passages_by_index) for passage in passages}
        return [by_id[identifier] for identifier in ids if identifier in by_id]

    async def close(self) -> None:
        """Free all retrievers."""
        for each in self._retrievers:
            await each.close()


class PartsRetriever:
    """The parts of an index, in order, as the whole that they are: all are searched at once.

    Their scores are of one scale: those of vectors, from one training. Where they are equal the earlier
    passage comes first, as in a whole index. One part that fails fails the search: without it there would be
    less to find, and nobody would know. ``fingerprint`` is the whole index's own.
    """

    def __init__(self, parts: Sequence[Retriever], fingerprint: str) -> None:
        self._parts = tuple(parts)
        self.fingerprint = fingerprint

    @property
    def retried(self) -> int:
        """How many requests had to be sent again to search servers."""
        return sum(int(getattr(each, "retried", 0)) for each in self._parts)

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first."""
        hits_by_part = await gather(_hits(each, query, k) for each in self._parts)
        # Sorting keeps the order of what is equal: part by part, each in its own order.
        sorted_hits = sorted((hit for hits in hits_by_part for hit in hits), key=lambda hit: -hit.score)
        return with_note(sorted_hits[:k], search_note(*hits_by_part))

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        passages_by_part = await gather(_passages(each, ids) for each in self._parts)
        by_id = {passage.id: passage for passages in passages_by_part for passage in passages}
        return [by_id[identifier] for identifier in ids if identifier in by_id]

    async def close(self) -> None:
        """Free all parts."""
        for each in self._parts:
            await each.close()


async def _hits(part: Retriever, query: str, k: int) -> Sequence[Hit]:
    return await part.search(query, k)


async def _passages(part: Retriever, ids: Sequence[str]) -> Sequence[Passage]:
    return await part.passages(ids)


class RerankedRetriever:
    """Fetch ``depth`` hits (more if more is asked for), score each with a re-ranker, return the best k.

    ``model``: a Hugging Face name, a folder or a server's address. Raises as
    :func:`retrieval.rerankers.open_reranker` does.
    """

    def __init__(self, inner: Retriever, model: str, depth: int, placement: Placement | None = None) -> None:
        self._reranker = open_reranker(model, placement)
        self._inner = inner
        self._depth = depth
        self._batcher = MicroBatcher(self._score, max_batch=_MAX_RERANKED_QUERIES, name="rerank")
        self._identity = f"rerank|{self._reranker.fingerprint}|{depth}"
        self.fingerprint = stable_hash(f"{self._identity}|{inner.fingerprint}")

    def over(self, inner: Retriever) -> RerankedRetriever:
        """Return another retriever's hits in the order of the same cross-encoder, which this one closes."""
        other = copy.copy(self)
        other._inner = inner
        other.fingerprint = stable_hash(f"{self._identity}|{inner.fingerprint}")
        return other

    @property
    def retried(self) -> int:
        """How many requests had to be sent again to search servers."""
        return int(getattr(self._inner, "retried", 0))

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first; scores are the re-ranker's."""
        hits = await self._inner.search(query, max(k, self._depth))
        if not hits:
            return ()
        scores = await self._batcher.submit((query, hits))
        if isinstance(scores, SearchFailedError):
            raise scores
        scored_hits = (Hit(hit.passage, score) for hit, score in zip(hits, scores, strict=True))
        # What the cross-encoder has no number for comes last.
        sorted_hits = sorted(scored_hits, key=lambda hit: (math.isnan(hit.score), -hit.score))
        return with_note(
            sorted_hits[:k], "; ".join(filter(None, (search_note(hits), self._reranker.note(query))))
        )

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._inner.passages(ids)

    async def close(self) -> None:
        """Free the cross-encoder and the index below."""
        self._batcher.close()
        self._reranker.close()
        await self._inner.close()

    def _score(self, items: Sequence[tuple[str, Sequence[Hit]]]) -> Sequence[ScoresOrError]:
        return self._reranker.score(
            [(query, [hit.passage.contents for hit in hits]) for query, hits in items]
        )


class CachedRetriever:
    """Ask the retriever below once per query and k; the last ``size`` of them are remembered.

    Equal searches in flight share one. ``size`` 0 remembers nothing, but joins all the same.
    """

    def __init__(self, inner: Retriever, size: int) -> None:
        self._inner = inner
        self._searches: RequestCache[tuple[str, int], Sequence[Hit]] = RequestCache(size)

    @property
    def fingerprint(self) -> str:
        """Identify what is searched: remembering changes nothing."""
        return self._inner.fingerprint

    @property
    def part(self) -> IndexPart | None:
        """Which part of an index is searched, None for a whole one."""
        part: IndexPart | None = getattr(self._inner, "part", None)
        return part

    @property
    def retried(self) -> int:
        """How many requests had to be sent again to search servers."""
        return int(getattr(self._inner, "retried", 0))

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first; none for a blank query, without asking.

        What was not searched for again says so by its type, :class:`corag.core.protocols.CachedHits`. Raises
        :class:`ConfigError` if k < 1.
        """
        if k < 1:
            raise ConfigError(f"a search must ask for at least one passage, but k is {k}.")
        if not query.strip():
            return ()
        hits, from_cache = await self._searches.fetch((query, k), lambda: self._inner.search(query, k))
        return CachedHits(hits, search_note(hits)) if from_cache else hits

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._inner.passages(ids)

    async def close(self) -> None:
        """Give up what is in flight and free the retriever below."""
        self._searches.cancel()
        await self._inner.close()
