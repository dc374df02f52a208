"""Never search for the same query twice."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import ConfigError
from core.protocols import CachedHits, Retriever
from core.request_cache import RequestCache
from core.types import Hit, Passage


class CachedRetriever:
    """A retriever that asks the one below it once per query and k, and remembers the last ``size`` of
    them.
    """

    def __init__(self, inner: Retriever, size: int) -> None:
        self._inner = inner
        self._searches: RequestCache[tuple[str, int], Sequence[Hit]] = RequestCache(size)

    @property
    def fingerprint(self) -> str:
        """Identify what is searched: remembering changes nothing."""
        return self._inner.fingerprint

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first; none for a blank query, without asking.

        Raises :class:`ConfigError` if k < 1.
        """
        if k < 1:
            raise ConfigError(f"a search must ask for at least one passage, but k is {k}.")
        if not query.strip():
            return ()
        hits, remembered = await self._searches.fetch((query, k), lambda: self._inner.search(query, k))
        return CachedHits(hits) if remembered else hits

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._inner.passages(ids)

    async def close(self) -> None:
        """Give up what is in flight and free the retriever below."""
        self._searches.cancel()
        await self._inner.close()
