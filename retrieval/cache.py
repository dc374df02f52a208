"""Remember searches, and join identical ones that are in flight."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from core.errors import ConfigError
from core.protocols import Retriever
from core.types import Hit, Passage


class CachedRetriever:
    """A retriever that asks the one below it once per (fingerprint, query, k), the last ``size`` of them.

    Failed searches are not remembered. A caller that is cancelled does not disturb those who wait for the same search.
    """

    def __init__(self, inner: Retriever, size: int) -> None:
        self._inner = inner
        self._size = size
        self._searches: OrderedDict[tuple[str, str, int], asyncio.Future[Sequence[Hit]]] = OrderedDict()

    @property
    def fingerprint(self) -> str:
        """Identify what is searched: remembering changes nothing."""
        return self._inner.fingerprint

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first; none for a blank query, without asking. Raises :class:`ConfigError` if k < 1."""
        if k < 1:
            raise ConfigError(f"a search must ask for at least one passage, but k is {k}.")
        if not query.strip():
            return ()
        key = (self.fingerprint, query, k)
        if (found := self._searches.get(key)) is None:
            found = self._searches[key] = asyncio.ensure_future(self._inner.search(query, k))
            found.add_done_callback(lambda done: self._settle(key, done))
        self._searches.move_to_end(key)
        return await asyncio.shield(found)

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._inner.passages(ids)

    async def close(self) -> None:
        """Free the retriever below."""
        self._searches.clear()
        await self._inner.close()

    def _settle(self, key: tuple[str, str, int], done: asyncio.Future[Sequence[Hit]]) -> None:
        if done.cancelled() or done.exception() is not None or self._size == 0:
            self._searches.pop(key, None)
        while len(self._searches) > max(self._size, 0) and next(iter(self._searches.values())).done():
            self._searches.popitem(last=False)
