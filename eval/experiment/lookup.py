"""Looking ids and titles up in what is searched: in the stores beside its indexes, else by the indexes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import cast

from corag.core.errors import CoragError
from corag.core.protocols import Retriever
from corag.core.types import Passage
from eval.experiment.executor import HasFingerprint
from retrieval.index.store import PassageStore, has_store
from retrieval.lucene.bm25 import LuceneSearcher
from retrieval.search.places import open_passages
from retrieval.search.stage import PassageSource

_BATCH = 1000  # ids that are looked up at once, and titles
_HITS = 50  # of a search for a title, among which the passages of that title are: they hold all its words


@asynccontextmanager
async def open_lookup(
    index: HasFingerprint | None, folders: Sequence[str]
) -> AsyncIterator[OpenIndex | Sources | None]:
    """Yield what looks passages up, None if there is no way to; close what it reads at the end.

    Args:
        index: what is searched; it may be open in other processes.
        folders: its indexes, where they lie here.
    """
    with ExitStack() as stack:
        # The store first: workers' indexes are not open here, and a server would be sent thousands of ids.
        has_stores = bool(folders) and all(has_store(Path(folder)) for folder in folders)
        if not has_stores and hasattr(index, "passages"):
            yield OpenIndex(cast(Retriever, index))
            return
        sources: list[PassageSource] = []
        # Without a store it may be on another machine; with one, what is wrong with it is told.
        with nullcontext() if has_stores else suppress(CoragError):
            for folder in folders:
                if source := open_passages(folder):
                    stack.callback(source.close)
                    sources.append(source)
        yield Sources(sources) if sources and len(sources) == len(folders) else None


class OpenIndex:
    """Says what an index has that is open in this process, or a server's."""

    def __init__(self, index: Retriever) -> None:
        self._index = index

    async def passages(self, ids: Sequence[str]) -> Mapping[str, Passage]:
        """Return the passages of those ids that there are."""
        batches = [await self._index.passages(batch) for batch in _batches(ids)]
        return {passage.id: passage for batch in batches for passage in batch}

    async def titles(self, titles: Collection[str]) -> set[str]:
        """Return those titles that any passage has, exactly so: each is searched for."""
        present = set()
        for batch in _batches(list(titles)):
            hits = await asyncio.gather(*(self._index.search(title, _HITS) for title in batch))
            present |= {hit.passage.title for each in hits for hit in each}
        return present & set(titles)


class Sources:
    """Says what indexes have whose texts lie here."""

    def __init__(self, sources: Sequence[PassageSource]) -> None:
        self._sources = sources

    async def passages(self, ids: Sequence[str]) -> Mapping[str, Passage]:
        """Return the passages of those ids that there are."""
        return {
            id_: passage
            for batch in _batches(ids)
            for source in self._sources
            for id_, passage in source.passages(batch).items()
        }

    async def titles(self, titles: Collection[str]) -> set[str]:
        """Return those titles that any passage has, exactly so: a store is read through."""
        wanted_titles, present = set(titles), set[str]()
        for source in self._sources:
            for passage in _with_titles(source, wanted_titles - present):
                present.add(passage.title)
                if len(present) >= len(wanted_titles):
                    break
        return present & wanted_titles


def _with_titles(source: PassageSource, titles: Collection[str]) -> Iterable[Passage]:
    """Stream passages of a source, those of some titles among them."""
    if isinstance(source, PassageStore):
        return (passage for passage in source.rows(0, len(source)) if passage.title in titles)
    if not isinstance(source, LuceneSearcher):
        return ()
    return (
        hit.passage
        for batch in _batches(sorted(titles))
        for hits in source.search(batch, _HITS)
        if not isinstance(hits, Exception)
        for hit in hits
        if hit.passage.title in titles
    )


def _batches(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    return (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
