"""The index that questions are answered from, and another that takes its place while the service runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corag.core.errors import CoragError
from corag.core.process import unix_time
from corag.core.protocols import Retriever
from corag.service.log import where
from corag.service.records import ServedRuns
from retrieval.config import RetrieverConfig
from retrieval.index_building import identify_folder
from retrieval.index_manifest import INDEX_FILE
from retrieval.open import open_retriever

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

    Attributes:
        on_disk: what is in the folders now: the "same" index that is searched, or one that has "changed" and
            is not searched (yet), or is "missing", or "unusable", since it cannot be opened.
    """

    def __init__(
        self,
        service: AnswerService,
        config: RetrieverConfig,
        *,
        reload: bool,
        places: Places,
        open_index: Callable[[RetrieverConfig], Awaitable[Retriever]] = open_retriever,
    ) -> None:
        """``places``: what :func:`find_places` returned before the index was opened."""
        self._service, self._config, self._reload = service, config, reload
        self._open_index = open_index
        self._places = self._last_places = places
        self._try_again = 0.0
        self.on_disk = "same"

    @property
    def state(self) -> dict[str, Any]:
        """The index as ``/readyz`` describes it."""
        index = self._service.index
        return {"fingerprint": index.fingerprint, "since": round(index.since, 3), "on_disk": self.on_disk}

    async def run(self) -> None:
        """Look every two seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - a watch that ended would leave an old index for ever
                self._service.log("index_watch_failed", error=where(error))

    async def _look(self) -> None:
        places = await asyncio.to_thread(find_places, self._config.index)
        if places == self._places:
            self._note("same")
            self._last_places = places
            return
        is_new, self._last_places = places != self._last_places, places
        if any(any(before) and not any(now) for before, now in zip(self._places, places, strict=True)):
            self._note("missing")  # what was no folder before, such as an own retriever, is none now
        elif not self._reload:
            self._note("changed")
        elif is_new or time.monotonic() >= self._try_again:
            await self._take(places)

    async def _take(self, places: Places) -> None:
        """Open what is in the folders, and answer from it."""
        self._note("changed")
        start, log = time.monotonic(), self._service.log
        retriever: Retriever | None = None
        try:
            retriever = await self._open_index(self._config)
            # What was looked at is what was opened, or it is looked at again.
            if await asyncio.to_thread(find_places, self._config.index) != places:
                await retriever.close()
                return
            if retriever.fingerprint == self._service.index.fingerprint:  # built again, of the same files
                await retriever.close()
                self._places = places
                self._note("same")
                return
            before = await self._service.replace_index(retriever)
        except Exception as error:  # noqa: BLE001 - whatever a library says to it, the old index still answers
            if retriever is not None:
                with suppress(Exception):
                    await retriever.close()
            self._try_again = time.monotonic() + _TRY_AGAIN_S
            self._note("unusable", str(error) if isinstance(error, CoragError) else where(error))
            self._service.metrics.count_reload("failed")
            return
        self._places = places
        log(
            "index_taken",
            fingerprint=retriever.fingerprint,
            before=before.fingerprint,
            seconds=round(time.monotonic() - start, 3),
        )
        self._service.metrics.count_reload("taken")
        self._note("same")
        await before.close_unused()
        log("index_closed", fingerprint=before.fingerprint)

    def _note(self, on_disk: str, error: str | None = None) -> None:
        """Remember what is in the folders, and log that it has changed."""
        if on_disk != self.on_disk and on_disk != "same":
            self._service.log(f"index_{on_disk}", reload=self._reload, error=error)
        self.on_disk = on_disk
        self._service.metrics.index_on_disk(on_disk == "same")


def find_places(folders: Sequence[str]) -> Places:
    """Return what tells the indexes in some folders from others that take their place; zeros for none."""
    return tuple(
        (
            *identify_folder(Path(folder).expanduser())[:2],
            *_identify_file(Path(folder).expanduser() / INDEX_FILE),
        )
        for folder in folders
    )


def _identify_file(file: Path) -> tuple[int, int]:
    try:
        state = file.stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size
