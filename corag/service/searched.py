"""The index that questions are answered from, and another that takes its place while the service runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corag.core.errors import CoragError
from corag.core.process import unix_time
from corag.core.protocols import Retriever
from corag.service.log import where
from corag.service.records import ServedRuns
from retrieval.config import RetrieverConfig
from retrieval.index.manifest import INDEX_FILE
from retrieval.search.pipeline import open_retriever

if TYPE_CHECKING:
    from corag.service.answering import AnswerService

LOOK_EVERY_S = 2.0
_TRY_AGAIN_S = 30.0  # an index that cannot be opened may be in the middle of being copied

Places = tuple[tuple[int, ...], ...]


class SearchedIndex:
    """An index that is open, with the run folders of the answers from it.

    Attributes:
        retriever: what is searched; None where nothing is.
        runs: where answers from it are recorded.
        since: when it was opened, in seconds since 1970.
    """

    def __init__(self, retriever: Retriever | None, runs: ServedRuns) -> None:
        self.retriever, self.runs = retriever, runs
        self.since = unix_time()
        self._users = 0
        self._no_users = asyncio.Event()
        self._no_users.set()

    @property
    def fingerprint(self) -> str:
        """What identifies the index and how it is searched; "" if nothing is."""
        return self.retriever.fingerprint if self.retriever is not None else ""

    @contextmanager
    def in_use(self) -> Iterator[SearchedIndex]:
        """Keep it open for the length of a block."""
        self._users += 1
        self._no_users.clear()
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._no_users.set()

    async def close_unused(self) -> None:
        """Close it once nobody uses it any more."""
        try:
            await self._no_users.wait()
        finally:
            self.runs.close()
            if self.retriever is not None:
                await self.retriever.close()


class IndexWatch:
    """Looks for another index in the folders that are searched, and lets a service go over to it.

    Questions that are being answered end with the index that they began with; it is closed after the last of
    them. Only then is the next change looked for, so that never more than two are open.
    """

    def __init__(
        self,
        service: AnswerService,
        config: RetrieverConfig,
        places: Places,
        open_index: Callable[[RetrieverConfig], Awaitable[Retriever]] = open_retriever,
    ) -> None:
        """``places``: what :func:`find_places` returned before the index was opened."""
        self._service, self._config, self._open_index = service, config, open_index
        self._taken = self._found = places

    @property
    def state(self) -> dict[str, Any]:
        """The index as ``/readyz`` describes it."""
        index, on_disk = self._service.index, "same" if self._found == self._taken else "changed"
        return {"fingerprint": index.fingerprint, "since": round(index.since, 3), "on_disk": on_disk}

    async def run(self) -> None:
        """Look every two seconds, until this is cancelled."""
        pause = LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause)
            try:
                await self._look()
                pause = LOOK_EVERY_S
            except Exception as error:  # noqa: BLE001 - whatever a library says to it, the old index still answers
                reason = str(error) if isinstance(error, CoragError) else where(error)
                self._service.log("index_unusable", error=reason)
                self._service.metrics.count_reload("failed")
                pause = _TRY_AGAIN_S
            self._service.metrics.index_on_disk(self._found == self._taken)

    async def _look(self) -> None:
        """Answer from what is in the folders, if that is another index than the one that is searched."""
        self._found = places = await asyncio.to_thread(find_places, self._config.index)
        if places == self._taken:
            return
        start, service = time.monotonic(), self._service
        retriever = await self._open_index(self._config)
        is_replaced = await asyncio.to_thread(find_places, self._config.index) != places
        if is_replaced or retriever.fingerprint == service.index.fingerprint:
            await retriever.close()  # it is looked at again, or it was built again of the same files
            self._taken = self._taken if is_replaced else places
            return
        try:
            before = await service.replace_index(retriever)
        except BaseException:
            await retriever.close()
            raise
        self._taken = places
        seconds = round(time.monotonic() - start, 3)
        service.log(
            "index_taken", fingerprint=retriever.fingerprint, before=before.fingerprint, seconds=seconds
        )
        service.metrics.count_reload("taken")
        await before.close_unused()
        service.log("index_closed", fingerprint=before.fingerprint)


def find_places(folders: Sequence[str]) -> Places:
    """Return what tells the indexes in some folders from others that take their place; zeros for none."""
    return tuple(_identify(Path(folder).expanduser()) for folder in folders)


def _identify(folder: Path) -> tuple[int, ...]:
    try:
        state, manifest = folder.stat(), (folder / INDEX_FILE).stat()
    except OSError:
        return (0,)
    return state.st_dev, state.st_ino, manifest.st_mtime_ns, manifest.st_size
