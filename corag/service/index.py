"""The index that questions are answered from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from corag.core.protocols import Retriever
from corag.service.records import Records


class SearchedIndex:
    """An index that is open, or None where nothing is searched, with where its answers are recorded."""

    def __init__(self, retriever: Retriever | None, records: Records) -> None:
        self.retriever, self.records = retriever, records
        self.unused = asyncio.Event()
        self.unused.set()
        self._users = 0

    @contextmanager
    def in_use(self) -> Iterator[SearchedIndex]:
        """Keep it open for the length of a block."""
        self._users += 1
        self.unused.clear()
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self.unused.set()

    @property
    def fingerprint(self) -> str:
        """What identifies the index and how it is searched; "" if nothing is."""
        return self.retriever.fingerprint if self.retriever is not None else ""

    async def close(self) -> None:
        """Close it. Safe to call twice."""
        self.records.close()
        if self.retriever is not None:
            await self.retriever.close()
