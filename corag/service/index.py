"""The index that questions are answered from, and another that takes its place while the service runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from corag.core.errors import CoragError
from corag.core.protocols import Retriever
from corag.service.log import where
from corag.service.records import Records
from retrieval.config import RetrieverConfig
from retrieval.index.manifest import INDEX_FILE
from retrieval.search.pipeline import open_retriever

if TYPE_CHECKING:
    from corag.service.answering import AnswerService

State = tuple[tuple[int, ...], ...]

LOOK_EVERY_S = 2.0
TRY_AGAIN_S = 30.0  # an index that cannot be opened may be in the middle of being copied


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


def folder_states(folders: Sequence[str]) -> State:
    """Return what tells the indexes in some folders from others that take their place; empty for none."""
    return tuple(_state(Path(folder).expanduser()) for folder in folders)


def _state(folder: Path) -> tuple[int, ...]:
    try:
        state, manifest = folder.stat(), (folder / INDEX_FILE).stat()
    except OSError:
        return ()
    return state.st_dev, state.st_ino, manifest.st_mtime_ns, manifest.st_size


async def follow_index(service: AnswerService, config: RetrieverConfig, taken: State) -> None:
    """Answer from whatever index takes the place of the one that is searched, until this is cancelled.

    Questions end with the index that they began with; it is closed after the last of them, and only then is
    the next change looked for, so that never more than two are open. ``taken``: the state of the folders
    before the first index was opened.
    """
    pause = LOOK_EVERY_S
    while True:
        await asyncio.sleep(pause)
        pause = LOOK_EVERY_S
        try:
            found = await asyncio.to_thread(folder_states, config.index)
            if found == taken:
                continue
            retriever = await open_retriever(config)
            if retriever.fingerprint == service.index.fingerprint:
                await retriever.close()  # it was built again of the same files
                taken = found
                continue
            try:
                records = await asyncio.to_thread(service.open_records, retriever)
            except CoragError:
                await retriever.close()
                raise
            taken, before, service.index = found, service.index, SearchedIndex(retriever, records)
            service.log("index_taken", fingerprint=retriever.fingerprint)
            await before.unused.wait()
            await before.close()
            service.log("index_closed", fingerprint=before.fingerprint)
        except Exception as error:  # noqa: BLE001 - whatever a library says to it, the old index still answers
            service.log("index_unusable", error=str(error) if isinstance(error, CoragError) else where(error))
            pause = TRY_AGAIN_S
