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

from corag.core.errors import BackendError, CoragError, reason
from corag.core.protocols import Ability, Generator
from corag.core.runs.rows import Row
from corag.core.system.machine import count_cores
from corag.core.tools import SearchStep
from corag.core.types import Hit, Question
from corag.generation import gpu_memory
from eval.experiment import extensions  # noqa: F401 - methods' BM25 presets
from eval.experiment.executor import QuestionTask, RemoteHandle
from retrieval.config import RetrieverConfig
from retrieval.search.pipeline import open_retriever
from retrieval.search.stage import SearchStage

EngineOpener = Callable[[], Awaitable[Generator]]
Addresses = Mapping[str, Mapping[str, str]]
"""Addresses of search servers: by what is searched, then by the node that they are on."""

# A server that has died is back within seconds, or as long as it takes to open its index: up to half a minute
# of tries.
_PATIENCE = 9
_MOST_TASKS = 16


@dataclass(frozen=True)
class Place:
    """The machine and process of an actor. ``ports``: some free ones there. ``gpus``: numbers of its GPUs."""

    node: str
    host: str
    address: str
    process: int
    ports: Sequence[int]
    gpus: Sequence[str]


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker that is ready has opened. ``indexes``: by key."""

    place: Place
    model: str
    lacks: Collection[Ability]
    about: Sequence[str]
    indexes: Mapping[str, RemoteHandle]


class Worker:
    """One engine, and clients of search servers.

    Its constructor opens nothing: what goes wrong then is an error of :meth:`open`, which Ray passes on.
    """

    def __init__(self, engine: EngineOpener, retrievers: Mapping[str, RetrieverConfig]) -> None:
        """``retrievers``: what to search, by keys; folders among it are searched through a server."""
        self._open_engine = engine
        self._retrievers = retrievers
        self._opening = asyncio.Lock()
        self._engine: Generator | None = None
        self._indexes: dict[str, SearchStage] = {}
        self._tasks: dict[str, QuestionTask] = {}

    async def where(self, ports: int) -> Place:
        """Return the place of this actor, with so many free ports."""
        return _place(ports)

    async def free_memory(self) -> float | None:
        """Return the share of memory that is free on this worker's GPUs, None if that is not known."""
        return gpu_memory.measure()

    async def open(self, servers: Addresses, free_memory: float | None = None) -> WorkerInfo:
        """Open what is not open yet, and return what is open.

        ``free_memory``: the share that every worker's engine counts on, None for what each finds.
        """
        gpu_memory.agree(free_memory)
        async with self._opening:
            for key, config in self._retrievers.items():
                if key not in self._indexes:
                    self._indexes[key] = await _client(config, servers.get(key, {}))
            if self._engine is None:
                self._engine = await self._open_engine()
        return WorkerInfo(
            _place(0),
            self._engine.fingerprint,
            tuple(self._engine.lacks),
            tuple(self._engine.about),
            {
                key: RemoteHandle(index.fingerprint, has_parts=index.has_parts)
                for key, index in self._indexes.items()
            },
        )

    async def run(self, question: Question, key: str, task: bytes, index: str) -> Row:
        """Run a pickled task on one question; the arguments are those of :meth:`RayPool.run`.

        Raises :class:`BackendError` if a server is gone. If the engine of this process is, the process ends:
        Ray starts another.
        """
        assert self._engine is not None
        if key not in self._tasks:
            if len(self._tasks) >= _MOST_TASKS:
                self._tasks.clear()
            self._tasks[key] = pickle.loads(task)
        try:
            row = await self._tasks[key](question, self._engine, self._indexes[index] if index else None)
        except BackendError:
            if self._engine.failed:
                os._exit(1)
            raise
        return without_texts(row)


def search_threads(cores: int, engines: int) -> int:
    """Return the threads of a machine's search server beside engines on its GPUs.

    Each engine keeps two cores busy: that of its own process, and its worker's.

    >>> [search_threads(64, 8), search_threads(16, 8), search_threads(64, 0)]
    [48, 4, 64]
    """
    return max(1, cores // 4, cores - 2 * engines)


class SearchServer:
    """Serves an index to the workers of one machine, as 'corag serve' does.

    In a thread of its own from the start, since Ray, when it starts this again, calls nothing but the
    constructor.
    """

    def __init__(
        self, config: RetrieverConfig, host: str, port: int, threads: str = "", engines: int = 0
    ) -> None:
        """``threads``: most that it takes, "" by the cores; ``engines``: those on GPUs of this machine."""
        self._config, self._host, self._port = config, host, port
        # Ray leaves one thread to an actor that has no cores of its own. This one encodes the queries of all
        # the machine's workers, mostly while their engines work on a GPU.
        os.environ["OMP_NUM_THREADS"] = threads or str(search_threads(count_cores(), engines))
        # Threads that wait leave the cores to the engines.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        self._ready = threading.Event()
        self._error: CoragError | None = None
        threading.Thread(target=self._serve, name="search", daemon=True).start()

    def ready(self) -> str:
        """Wait until the index is open and return the server's address; raise what kept it from opening."""
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return f"http://{self._host}:{self._port}"

    def process(self) -> int:
        """Return the id of this process."""
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
        from retrieval.http.server import serve  # with a web server, which no worker needs

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


def client_options(config: RetrieverConfig, url: str) -> RetrieverConfig:
    """Return a client's options for the server at ``url`` of what ``config`` searches."""
    # How is the server's part, re-ranking too: there is one of it, and a model in every worker would cost its
    # memory again.
    return type(config)(
        url=[url], timeout_s=config.timeout_s, retries=config.retries, cache_size=config.cache_size
    )


async def _client(config: RetrieverConfig, servers: Mapping[str, str]) -> SearchStage:
    """Open a client of the server on this machine, or of any other if it has none."""
    if not config.url:
        import ray

        node = ray.get_runtime_context().get_node_id()
        url = servers.get(node) or next(iter(servers.values()))
        config = client_options(config, url)
    return await open_retriever(replace(config, retries=max(config.retries, _PATIENCE)))


def _place(ports: int) -> Place:
    import ray

    context = ray.get_runtime_context()
    gpus = [str(gpu) for gpu in ray.get_gpu_ids()]
    address = ray.util.get_node_ip_address()
    return Place(context.get_node_id(), socket.gethostname(), address, os.getpid(), _free_ports(ports), gpus)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
