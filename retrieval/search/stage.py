"""The steps that a search is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from corag.core.errors import SearchFailedError
from corag.core.gather import gather
from corag.core.protocols import NotedHits
from corag.core.types import Hit, Passage
from retrieval.index.manifest import IndexPart

HitsOrError = Sequence[Hit] | SearchFailedError


def with_note(hits: Sequence[Hit], *notes: str) -> Sequence[Hit]:
    """Return hits with notes to them, "" for none."""
    note = "; ".join(filter(None, notes))
    return NotedHits(hits, note) if note else hits


class PassageSource(Protocol):
    """The texts of an index: its own store, or the Lucene index beside a FAISS folder of Pyserini's."""

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        ...

    def close(self) -> None:
        """Free the source. Safe to call twice."""
        ...


class BatchSearcher(PassageSource, Protocol):
    """A search over one index, called with whole batches: searches from one thread, look-ups from another.

    Searches come from as many threads as ``at_once`` of :class:`BatchedRetriever` says.
    """

    def search(self, queries: Sequence[str], k: int) -> Sequence[HitsOrError]:
        """Return for each query up to k hits, best first, or the error of that query alone."""
        ...


class SearchStage(ABC):
    """A step of a search: a :class:`corag.core.protocols.Retriever` over those below.

    What a stage does not define itself, those below do.

    Attributes:
        below: what it asks.
        fingerprint: identifies what is found: see :class:`corag.core.protocols.Retriever`.
    """

    below: Sequence[SearchStage] = ()
    fingerprint: str

    def __init__(self, *below: SearchStage) -> None:
        self.below = below

    @property
    def part(self) -> IndexPart | None:
        """Which part of an index is searched, None for a whole one."""
        return self.below[0].part if len(self.below) == 1 else None

    @property
    def has_hops(self) -> bool:
        """Whether queries that were asked on the way to an answer have an encoder of their own."""
        return any(each.has_hops for each in self.below)

    @property
    def has_parts(self) -> bool:
        """Whether passages of an index are parts of documents, whose ids gold ids may be."""
        return any(each.has_parts for each in self.below)

    @property
    def retried(self) -> int:
        """How many requests had to be sent again to search servers."""
        return sum(each.retried for each in self.below)

    @abstractmethod
    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first. ``hop``: the query was asked on the way to an answer."""

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order, each from the first that has it."""
        if len(self.below) == 1:
            return await self.below[0].passages(ids)
        passages = await gather(each.passages(ids) for each in self.below)
        by_id = {passage.id: passage for some in reversed(passages) for passage in some}
        return [by_id[identifier] for identifier in ids if identifier in by_id]

    async def close(self) -> None:
        """Free what it holds, and those below. Safe to call twice."""
        for each in self.below:
            await each.close()
