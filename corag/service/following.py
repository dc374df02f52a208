"""The next index: it takes the place of the one that is searched while the service runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from corag.core.errors import CoragError
from corag.service.answering import AnswerService
from corag.service.index import SearchedIndex
from corag.service.log import where
from retrieval.config import RetrieverConfig
from retrieval.index.manifest import INDEX_FILE
from retrieval.search.pipeline import open_retriever

LOOK_EVERY_S = 2.0
TRY_AGAIN_S = 30.0  # an index that cannot be opened may be in the middle of being copied


def folder_states(folders: Sequence[str]) -> list[tuple[int, ...]]:
    """Return what tells the indexes in some folders from others that take their place.

    An empty one is that of a folder without a manifest of ours.
    """
    states: list[tuple[int, ...]] = []
    for folder in folders:
        try:
            manifest = (Path(folder).expanduser() / INDEX_FILE).stat()
            states.append((manifest.st_ino, manifest.st_mtime_ns, manifest.st_size))
        except OSError:
            states.append(())
    return states


async def follow_index(service: AnswerService, config: RetrieverConfig, taken: list[tuple[int, ...]]) -> None:
    """Answer from whatever index takes the place of the one that is searched, until this is cancelled.

    ``taken``: the state of the folders before the first index was opened.
    """
    # What a search server has, and an index without a manifest of ours, is not watched.
    if service.index.retriever is None or not taken or not all(taken):
        return
    pause = LOOK_EVERY_S
    while True:
        await asyncio.sleep(pause)
        pause = LOOK_EVERY_S
        found = await asyncio.to_thread(folder_states, config.index)
        if found == taken:
            continue
        try:
            await _take_index(service, config)
            taken = found
        except Exception as error:  # noqa: BLE001 - whatever a library says to it, the old index still answers
            service.log("index_unusable", error=str(error) if isinstance(error, CoragError) else where(error))
            pause = TRY_AGAIN_S


async def _take_index(service: AnswerService, config: RetrieverConfig) -> None:
    """Answer from the index that is there now, and close the one before after the last of its questions.

    Only then is the next change looked for, so that never more than two are open.
    """
    retriever = await open_retriever(config)
    if retriever.fingerprint == service.index.fingerprint:
        await retriever.close()  # it was built again of the same files
        return
    try:
        records = await asyncio.to_thread(service.open_records, retriever)
    except CoragError:
        await retriever.close()
        raise
    before, service.index = service.index, SearchedIndex(retriever, records)
    service.log("index_taken", fingerprint=retriever.fingerprint)
    await before.unused.wait()
    await before.close()
    service.log("index_closed", fingerprint=before.fingerprint)
