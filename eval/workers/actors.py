"""What runs in Ray's processes: workers, and one search server per machine for those that are on it.

Light on purpose: whatever is imported here is imported by every worker. Ray itself is not: it makes actors of
these classes where they are started (``ray_pool.py``).
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.errors import BackendError, CoragError, reason
from core.protocols import Ability, Generator, Retriever
from core.runs.rows import Row
from core.tools import SearchStep
from core.types import Hit, Question
from eval.workers.work import Work

if TYPE_CHECKING:
    from retrieval.config import RetrieverConfig

EngineOpener = Callable[[], Awaitable[Generator]]
Addresses = Mapping[str, Mapping[str, str]]
"""Addresses of search servers: by what is searched, then by the node that they are on."""

# A server that has died is back within seconds, or as long as it takes to open its index: up to half a minute
# of tries.
_PATIENCE = 9
_JOBS_KEPT = 16


@dataclass(frozen=True)
class Place:
    """Where an actor is. ``ports``: some that nobody listens on there. ``gpus``: numbers of its GPUs."""

    node: str
    host: str
    address: str
    process: int
    ports: Sequence[int]
    gpus: Sequence[str]


@dataclass(frozen=True)
class Greeting:
    """What a worker that is ready says of what it opened; indexes by the keys under which it knows them."""

    place: Place
    model: str
    lacks: Collection[Ability]
    about: Sequence[str]
    indexes: Mapping[str, str]


class Worker:
    """One engine, and clients of search servers.

    Made without opening anything: what goes wrong then is an error of :meth:`open`, which Ray hands on.
    """

    def __init__(self, engine: EngineOpener, searched: Mapping[str, RetrieverConfig]) -> None:
        """``searched``: what to search, by keys; folders among it are searched through a server."""
        self._open_engine = engine
        self._searched = searched
        self._opening = asyncio.Lock()
        self._engine: Generator | None = None
        self._indexes: dict[str, Retriever] = {}
        self._works: dict[str, Work] = {}

    async def where(self, ports: int) -> Place:
        """Say where this is, with so many free ports."""
        return _place(ports)

    async def open(self, servers: Addresses) -> Greeting:
        """Open what is not open yet, and say what it is."""
        async with self._opening:
            for key, config in self._searched.items():
                if key not in self._indexes:
                    self._indexes[key] = await _client(config, servers.get(key, {}))
            if self._engine is None:
                self._engine = await self._open_engine()
        return Greeting(
            _place(0),
            self._engine.fingerprint,
            tuple(getattr(self._engine, "lacks", ())),
            tuple(getattr(self._engine, "about", ())),
            {key: index.fingerprint for key, index in self._indexes.items()},
        )

    async def answer(self, question: Question, key: str, work: bytes, index: str) -> Row:
        """Work on one question. ``key``: the same for the same pickled ``work``. ``index``: its key, or "".

        Raises :class:`BackendError` if a server is gone. Where the engine in this process is, the process
        ends with it: Ray starts another.
        """
        assert self._engine is not None
        if key not in self._works:
            if len(self._works) >= _JOBS_KEPT:
                self._works.clear()
            self._works[key] = pickle.loads(work)
        try:
            row = await self._works[key](question, self._engine, self._indexes[index] if index else None)
        except BackendError:
            if getattr(self._engine, "failed", False):
                os._exit(1)
            raise
        return without_texts(row)


class SearchServer:
    """Serves an index to the workers of one machine, as 'corag serve' does.

    In a thread of its own from the start, since Ray, when it starts this again, calls nothing but the
    constructor.
    """

    def __init__(self, config: RetrieverConfig, host: str, port: int) -> None:
        self._config, self._host, self._port = config, host, port
        self._ready = threading.Event()
        self._error: CoragError | None = None
        threading.Thread(target=self._serve, name="search", daemon=True).start()

    def ready(self) -> str:
        """Wait until the index is open and return the server's address; raises what went wrong with it."""
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return f"http://{self._host}:{self._port}"

    def process(self) -> int:
        """Return the number of this process."""
        return os.getpid()

    def _serve(self) -> None:
        try:
            asyncio.run(self._answer())
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for this thread
            if not self._ready.is_set():
                self._error = error if isinstance(error, CoragError) else BackendError(reason(error))
                self._ready.set()
        finally:
            if self._error is None:  # it served once, and no longer does: Ray starts another
                os._exit(1)

    async def _answer(self) -> None:
        from eval.experiment import extensions  # noqa: F401 - methods' BM25 presets
        from retrieval.http.server import serve
        from retrieval.open import open_retriever

        retriever = await open_retriever(self._config)
        await serve(retriever, self._host, self._port, lambda _: self._ready.set())


def without_texts(row: Row) -> Row:
    """Return a row without its passages' texts, which are most of it and not written anyway."""
    return replace(
        row,
        steps=tuple(
            replace(step, hits=tuple(Hit(replace(hit.passage, text=""), hit.score) for hit in step.hits))
            if isinstance(step, SearchStep)
            else step
            for step in row.steps
        ),
    )


async def _client(config: RetrieverConfig, servers: Mapping[str, str]) -> Retriever:
    """Open a client of the server on this machine, or of any other if it has none."""
    from retrieval.open import open_retriever

    if not config.url:
        import ray

        here = ray.get_runtime_context().get_node_id()
        url = servers.get(here) or next(iter(servers.values()))
        # The server re-ranks, if anybody does: there is one of it.
        config = replace(config, index=[], url=[url], reranker="")
    return await open_retriever(replace(config, retries=max(config.retries, _PATIENCE)))


def _place(ports: int) -> Place:
    import ray

    context = ray.get_runtime_context()
    gpus = [str(gpu) for gpu in ray.get_gpu_ids()]
    address = ray.util.get_node_ip_address()
    return Place(context.get_node_id(), socket.gethostname(), address, os.getpid(), _free(ports), gpus)


def _free(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
