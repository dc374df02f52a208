"""The bridge between many awaiting callers and one search that likes batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from core.batching import MicroBatcher
from core.errors import BackendError, SearchFailedError
from core.types import Hit, Passage

Outcome = Sequence[Hit] | SearchFailedError

MAX_BATCH = 1024


class BatchSearcher(Protocol):
    """A search over one index, called with whole batches: searches from one thread, look-ups from another."""

    def search(self, queries: Sequence[str], k: int) -> Sequence[Outcome]:
        """Return for each query up to k hits, best first, or the error of that query alone."""
        ...

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        ...

    def close(self) -> None:
        """Free the index. Safe to call twice."""
        ...


class BatchedRetriever:
    """A :class:`core.protocols.Retriever` over a :class:`BatchSearcher`: who waits at the same time is
    searched in one batch.
    """

    def __init__(self, searcher: BatchSearcher, fingerprint: str) -> None:
        self._searcher = searcher
        self._fingerprint = fingerprint
        self._searches = MicroBatcher(self._search_batch, max_batch=MAX_BATCH, name="search")
        self._lookups = MicroBatcher(self._look_up_batch, max_batch=MAX_BATCH, name="passages")
        self._closed = False

    @property
    def fingerprint(self) -> str:
        """Identify corpus, index settings and encoder."""
        return self._fingerprint

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first."""
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
            await asyncio.to_thread(self._searches.close)
            await asyncio.to_thread(self._lookups.close)
            self._searcher.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise BackendError("this index was closed: open it again with open_retriever.")

    def _search_batch(self, items: Sequence[tuple[str, int]]) -> Sequence[Outcome]:
        """Search one batch per distinct k, so that one deep search does not make the others deep."""
        outcomes: list[Outcome] = [()] * len(items)
        for depth in sorted({k for _, k in items}):
            places = [place for place, (_, k) in enumerate(items) if k == depth]
            for place, outcome in zip(
                places, self._searcher.search([items[p][0] for p in places], depth), strict=True
            ):
                outcomes[place] = outcome
        return outcomes

    def _look_up_batch(self, items: Sequence[Sequence[str]]) -> Sequence[Sequence[Passage]]:
        found = self._searcher.passages(
            list(dict.fromkeys(identifier for ids in items for identifier in ids))
        )
        return [tuple(found[identifier] for identifier in ids if identifier in found) for ids in items]
