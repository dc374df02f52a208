"""Never search for the same query twice."""

from __future__ import annotations

from collections.abc import Sequence

from corag.core.errors import ConfigError
from corag.core.protocols import CachedHits, search_note
from corag.core.request_cache import RequestCache
from corag.core.types import Hit
from retrieval.search.stage import SearchStage


class CachedRetriever(SearchStage):
    """Ask the stage below once per query and k; the last ``size`` of them are remembered.

    Equal searches in flight share one. ``size`` 0 remembers nothing, but joins all the same.
    """

    def __init__(self, below: SearchStage, size: int) -> None:
        super().__init__(below)
        self.fingerprint = below.fingerprint  # remembering changes nothing
        self._searches: RequestCache[tuple[str, int, bool], Sequence[Hit]] = RequestCache(size)

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first.

        What was not searched for again says so by its type, :class:`corag.core.protocols.CachedHits`. Raises
        :class:`ConfigError` if k < 1.
        """
        if k < 1:
            raise ConfigError(f"a search must ask for at least one passage, but k is {k}.")
        hop = hop and self.has_hops
        (below,) = self.below
        hits, from_cache = await self._searches.fetch((query, k, hop), lambda: below.search(query, k, hop))
        return CachedHits(hits, search_note(hits)) if from_cache else hits

    async def close(self) -> None:
        """Give up what is in flight and free the stage below."""
        self._searches.cancel()
        await super().close()
