"""Several retrievers as one, by reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from core.fusion import fuse
from core.protocols import Retriever
from core.seeds import stable_hash
from core.types import Hit, Passage


class FusedRetriever:
    """Search every retriever ``depth`` deep at the same time (deeper if more is asked for) and fuse the
    rankings.
    """

    def __init__(self, retrievers: Sequence[Retriever], *, depth: int, rrf_k: int) -> None:
        self._retrievers = tuple(retrievers)
        self._depth = depth
        self._rrf_k = rrf_k
        self._fingerprint = stable_hash(
            f"rrf|{depth}|{rrf_k}|" + "|".join(each.fingerprint for each in retrievers)
        )

    @property
    def fingerprint(self) -> str:
        """Identify the fused indexes and how they are fused."""
        return self._fingerprint

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first; scores are reciprocal ranks."""
        depth = max(k, self._depth)
        rankings = await asyncio.gather(*(each.search(query, depth) for each in self._retrievers))
        return fuse(rankings, self._rrf_k)[:k]

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, each from the first index that has it.

        Unknown ids are left out.
        """
        found = await asyncio.gather(*(each.passages(ids) for each in self._retrievers))
        by_id = {passage.id: passage for passages in reversed(found) for passage in passages}
        return [by_id[identifier] for identifier in ids if identifier in by_id]

    async def close(self) -> None:
        """Free all retrievers."""
        for each in self._retrievers:
            await each.close()
