"""One index: queries that wait at the same time are searched in one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from corag.core.batching import MicroBatcher
from corag.core.errors import BackendError, SearchFailedError
from corag.core.protocols import search_note
from corag.core.types import Hit, Passage
from retrieval.index.aliases import Aliases
from retrieval.index.manifest import IndexPart
from retrieval.search.stage import BatchSearcher, HitsOrError, SearchStage, with_note

_MAX_BATCH = 1024
BY_HOP_ENCODER = "encoded by the hop encoder"


class BatchedRetriever(SearchStage):
    """A search over a :class:`BatchSearcher`, which likes batches.

    Attributes:
        folder: of the index.
        searcher: what searches.
        hop_searcher: what searches for queries that were asked on the way to an answer, None for the same.
    """

    hop_searcher: BatchSearcher | None = None

    def __init__(
        self,
        searcher: BatchSearcher,
        fingerprint: str,
        folder: Path,
        part: IndexPart | None = None,
        at_once: int = 1,
    ) -> None:
        """``fingerprint``: of corpus, index settings and encoder.

        ``part``: which part of an index it is, None for a whole one. ``at_once``: batches that the searcher
        takes at the same time.
        """
        super().__init__()
        self.fingerprint, self.folder, self.searcher = fingerprint, folder, searcher
        self._part = part
        # Threads of their own: a look-up of passages by id does not wait behind a long batch of searches.
        self._searches = MicroBatcher(
            self._search_batch, max_batch=_MAX_BATCH, name="search", at_once=at_once
        )
        self._lookups = MicroBatcher(self._look_up_batch, max_batch=_MAX_BATCH, name="passages")
        self._closed = False

    @property
    def part(self) -> IndexPart | None:
        """Which part of an index is searched, None for a whole one."""
        return self._part

    @property
    def has_hops(self) -> bool:
        """Whether queries that were asked on the way to an answer have an encoder of their own."""
        return self.hop_searcher is not None

    @property
    def has_parts(self) -> bool:
        """Whether passages of the index are parts of documents, whose ids gold ids may be."""
        return Aliases.load(self.folder).numbered

    def set_hop_searcher(self, searcher: BatchSearcher, fingerprint: str, part: IndexPart | None) -> None:
        """Search otherwise for queries that were asked on the way; the rest is of both searches together."""
        self.hop_searcher, self.fingerprint, self._part = searcher, fingerprint, part

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first. Raises :class:`SearchFailedError` if this query is refused."""
        self._refuse_if_closed()
        if not query.strip():
            return ()
        hop = hop and self.has_hops
        outcome = await self._searches.submit((query, k, hop))
        if isinstance(outcome, SearchFailedError):
            raise outcome
        return with_note(outcome, BY_HOP_ENCODER, search_note(outcome)) if hop else outcome

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
            if self.hop_searcher is not None:
                self.hop_searcher.close()
            self.searcher.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise BackendError("this index was closed: open it again with open_retriever.")

    def _search_batch(self, items: Sequence[tuple[str, int, bool]]) -> Sequence[HitsOrError]:
        # One batch per distinct k, so that one deep search does not make the others deep.
        outcomes: list[HitsOrError] = [()] * len(items)
        for depth, hop in sorted({(k, hop) for _, k, hop in items}):
            places = [number for number, (_, *kind) in enumerate(items) if kind == [depth, hop]]
            searcher = self.hop_searcher if hop and self.hop_searcher is not None else self.searcher
            batch_outcomes = searcher.search([items[position][0] for position in places], depth)
            for position, outcome in zip(places, batch_outcomes, strict=True):
                outcomes[position] = outcome
        return outcomes

    def _look_up_batch(self, items: Sequence[Sequence[str]]) -> Sequence[Sequence[Passage]]:
        by_id = self.searcher.passages(list(dict.fromkeys(identifier for ids in items for identifier in ids)))
        return [tuple(by_id[identifier] for identifier in ids if identifier in by_id) for ids in items]
