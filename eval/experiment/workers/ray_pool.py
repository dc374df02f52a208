"""Workers as actors of Ray: a question goes to the one that remembers it, one that dies is started again.

Placement, transport and the watch over processes are Ray's. What is done here: each worker has a bounded
number of questions; each question has a worker of its own by a hash of its id, so that the next cell of a
sweep meets the replies and prefixes of the cell before; those of a dead worker go to others.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

from corag.core.errors import BackendError, ConfigError, CoragError, reason
from corag.core.gather import gather
from corag.core.runs.rows import Row
from corag.core.seeds import stable_hash
from corag.core.types import Question
from eval.experiment.executor import QuestionTask, RemoteHandle
from eval.experiment.progress import Work
from eval.experiment.workers.actors import Addresses, EngineOpener, Place, Worker, WorkerInfo
from eval.experiment.workers.cluster import connect
from eval.experiment.workers.config import WorkersConfig
from eval.experiment.workers.resources import plan_workers
from eval.experiment.workers.search_servers import SearchServers
from retrieval.config import RetrieverConfig

TRIES = 3  # workers that a question may see die, all but the first alone, before it is taken for the reason
_OTHER_CALLS = 8  # calls that a worker takes beside questions: its place, opening its engine
_MOST_OF_MEAN = 1.2  # of the mean load: a worker that has more gets no question only because it remembers it
_RETRY_S = 0.5
_PLACEMENT_S = 600.0  # until every worker's process runs; engines open later and may take longer


class _State(Enum):
    UP = auto()
    RESTARTING = auto()
    DEAD = auto()


@dataclass(eq=False)
class PoolWorker:
    """A worker's actor and state in the pool.

    ``load``: questions that it has now. ``exclusive``: it takes no other question. ``why``: what ended it.
    """

    number: int
    actor: Any
    info: WorkerInfo | None = None
    state: _State = _State.RESTARTING
    load: int = 0
    exclusive: bool = False
    deaths: int = 0
    why: str = ""

    @property
    def place(self) -> Place:
        """The machine and process that it runs in now."""
        assert self.info is not None
        return self.info.place


@asynccontextmanager
async def ray_pool(
    config: WorkersConfig,
    engine: EngineOpener,
    retrievers: Sequence[RetrieverConfig] = (),
    *,
    in_flight: int,
    servers: SearchServers | None = None,
) -> AsyncIterator[RayPool]:
    """Start workers, and search servers for them, and end all of it with the block.

    Args:
        config: how many, with what.
        engine: opens a worker's engine, in its process; can be pickled.
        retrievers: what is searched; for folders each machine gets one server.
        in_flight: questions that a worker has at once, up to a fifth more where others have fewer.
        servers: search servers that outlive the block, since somebody else ends them; None for own ones.

    Raises:
        ConfigError: if Ray is not installed, or there is no room for the workers.
        BackendError: if an engine or index does not open.
    """
    with connect(config) as ray:
        own_servers = SearchServers()
        pool = RayPool(ray, config, engine, retrievers, in_flight, servers or own_servers)
        try:
            await pool.open()
            yield pool
        finally:
            pool.end()
            own_servers.end()


class RayPool:
    """Workers that are open. See :func:`ray_pool`."""

    def __init__(
        self,
        ray: Any,
        config: WorkersConfig,
        engine: EngineOpener,
        retrievers: Sequence[RetrieverConfig],
        in_flight: int,
        servers: SearchServers,
    ) -> None:
        self._ray, self._config, self._in_flight = ray, config, in_flight
        self._most = math.ceil(_MOST_OF_MEAN * in_flight)
        self._engine = engine
        self._retrievers = {stable_hash(repr(each)): each for each in retrievers}
        self._addresses: Addresses = {}
        self._free_memory: float | None = None
        self._change = asyncio.Condition()
        self._opening: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._revivals: set[asyncio.Task[None]] = set()
        self.workers: list[PoolWorker] = []
        self.servers = servers

    async def open(self) -> None:
        """Start all processes, and wait until every engine is ready."""
        count, cpus = plan_workers(self._config, self._ray)
        kind = self._ray.remote(Worker).options(
            num_cpus=cpus,
            num_gpus=self._config.gpus_per_worker,
            max_restarts=self._config.restarts,
            max_task_retries=0,  # the pool decides which questions are tried again, and how often
            max_concurrency=self._most + _OTHER_CALLS,
        )
        self.workers = [
            PoolWorker(number, kind.remote(self._engine, self._retrievers)) for number in range(count)
        ]
        try:
            folders = {key: each for key, each in self._retrievers.items() if not each.url}
            places = await self._wait_for_places(len(folders), cpus)
            self._addresses = await self.servers.start(self._ray, folders, places)
            if self._config.gpus_per_worker:  # after the servers, which may hold an encoder on one of them
                free = [worker.actor.free_memory.remote() for worker in self.workers]
                shares = [share for each in free if (share := await each) is not None]
                self._free_memory = min(shares, default=None)
            infos = await gather(map(self._open_worker, self.workers))
            for worker, info in zip(self.workers, infos, strict=True):
                worker.info, worker.state = info, _State.UP
        except self._ray.exceptions.RayTaskError as error:
            raise _unwrap(error) from None
        except self._ray.exceptions.RayError as error:
            raise BackendError(f"a worker ended before it was ready: {reason(error)}") from None
        self._refuse_differences()

    async def _wait_for_places(self, ports: int, cpus: float) -> Sequence[Place]:
        """Wait until every worker has a place; :class:`ConfigError` if that takes too long."""
        places: list[Place] = []

        async def locate(worker: PoolWorker) -> Place:
            place: Place = await worker.actor.where.remote(ports)
            places.append(place)
            return place

        try:
            async with asyncio.timeout(_PLACEMENT_S):
                return await gather(map(locate, self.workers))
        except TimeoutError:
            raise ConfigError(
                f"only {len(places)} of {len(self.workers)} workers found a place within {_PLACEMENT_S:g} "
                f"seconds: each asks for {self._config.gpus_per_worker:g} GPUs and {cpus:.3g} cores."
            ) from None

    async def _open_worker(self, worker: PoolWorker) -> WorkerInfo:
        """Open a worker's engine, after those that are being opened on its GPUs.

        vLLM takes what is filled on a GPU meanwhile for its own.
        """
        place: Place = await worker.actor.where.remote(0)
        async with AsyncExitStack() as stack:
            for gpu in sorted(place.gpus):
                await stack.enter_async_context(self._opening[place.node, gpu])
            info: WorkerInfo = await worker.actor.open.remote(self._addresses, self._free_memory)
        return info

    def _refuse_differences(self) -> None:
        first = self.workers[0]
        for worker in self.workers[1:]:
            if difference := _describe_difference(first.info, worker.info):
                raise ConfigError(
                    f"the workers on {first.place.host} and {worker.place.host} opened different "
                    f"{difference}: give every machine the same versions, model and index."
                )

    def executor(self, retriever: RetrieverConfig | None) -> RayExecutor:
        """Return an executor of these workers that searches one of their indexes, or none."""
        return RayExecutor(self, stable_hash(repr(retriever)) if retriever is not None else "")

    async def run(self, question: Question, key: str, task: bytes, index: str) -> Row:
        """Run a pickled task on the question's worker; if that dies on another, up to ``TRIES`` times.

        Any question of a worker that dies may be the reason. So each is then tried on a worker of its own:
        the deadly one ends no other question any more, and the others are answered.

        Args:
            question: the task's argument.
            key: the same for the same task.
            task: a pickled :class:`QuestionTask`.
            index: the key of what is searched, "" for nothing.

        Raises :class:`BackendError` if no worker is left.
        """
        start = time.perf_counter()
        why = ""
        for attempt in range(TRIES):
            alone = attempt > 0
            worker = await self._acquire(question.id, alone)
            try:
                row: Row = await worker.actor.run.remote(question, key, task, index)
                return row
            except self._ray.exceptions.RayTaskError as error:
                raise _unwrap(error) from None
            except self._ray.exceptions.RayError as error:
                why = reason(error)
                self._mark_dead(worker, why)
            finally:
                await self._release(worker, alone)
        error_text = (
            f"WorkerDiedError: {TRIES} workers died while they answered this question, the last: {why}"
        )
        return Row(question, None, (), {}, time.perf_counter() - start, error_text)

    async def _acquire(self, question_id: str, alone: bool) -> PoolWorker:
        """Wait for a worker that takes one more question, or has no other, and add one to its load."""
        order = sorted(self.workers, key=lambda each: stable_hash(f"{question_id} {each.number}"))
        while True:
            async with self._change:
                await self._change.wait_for(lambda: self._choose(order, alone) or self._all_dead())
                worker = self._choose(order, alone)
                if worker is None:
                    raise BackendError(
                        f"no worker is left ({self.workers[-1].why}): each died more often than it is "
                        f"started again (workers.restarts={self._config.restarts}), or its machine is gone."
                    )
                worker.load += 1
                worker.exclusive = alone
            if not alone or await self._wait_until_alone(worker):
                return worker

    async def _wait_until_alone(self, worker: PoolWorker) -> bool:
        """Wait until an exclusive worker has answered its other questions; release it if it died of them."""
        alone = False
        try:
            async with self._change:
                await self._change.wait_for(lambda: worker.load == 1 or worker.state is not _State.UP)
            alone = worker.state is _State.UP
        finally:
            if not alone:
                await self._release(worker, True)
        return alone

    async def _release(self, worker: PoolWorker, alone: bool) -> None:
        worker.load -= 1
        if alone:
            worker.exclusive = False
        async with self._change:
            self._change.notify_all()  # not one: the woken may wait for another worker

    def _choose(self, order: Sequence[PoolWorker], alone: bool) -> PoolWorker | None:
        """Return the worker that a question goes to, None if none takes one more.

        That is the first in its ``order``, which is the same whenever it is asked: the worker that remembers
        it; if that is down or has a fifth more questions than the mean, the worker with the fewest.
        ``alone``: for a question that waits there until the others are answered, so a full worker will do.
        """
        up = [each for each in order if each.state is _State.UP]
        ready = [each for each in up if not each.exclusive and (alone or each.load < self._most)]
        home = next((each for each in order if each.state is not _State.DEAD), None)
        most = max(1.0, _MOST_OF_MEAN * sum(each.load for each in up) / max(1, len(up)))
        if home in ready and home is not None and home.load < most and not alone:
            return home
        return min(ready, key=lambda each: each.load, default=None)

    def _all_dead(self) -> bool:
        return all(each.state is _State.DEAD for each in self.workers)

    def _mark_dead(self, worker: PoolWorker, why: str) -> None:
        """Mark a worker as dead and wait for its restart; all its questions report the same death."""
        if worker.state is _State.UP:
            worker.state, worker.why, worker.deaths = _State.RESTARTING, why, worker.deaths + 1
            task = asyncio.get_running_loop().create_task(self._revive(worker))
            self._revivals.add(task)
            task.add_done_callback(self._revivals.discard)

    async def _revive(self, worker: PoolWorker) -> None:
        """Wait until Ray has started a worker again and its engine is open; if Ray gives up, it is gone."""
        state = _State.DEAD
        while True:
            try:
                info = await self._open_worker(worker)
            except self._ray.exceptions.RayTaskError as error:
                worker.why = reason(_unwrap(error))
                break
            except self._ray.exceptions.ActorDiedError as error:  # for good
                worker.why = reason(error)
                break
            except self._ray.exceptions.RayError:  # it is being started, or died again meanwhile
                await asyncio.sleep(_RETRY_S)
                continue
            if difference := _describe_difference(worker.info, info):
                worker.why = f"on {info.place.host} a worker that came back opened different {difference}"
            else:
                worker.info, state = info, _State.UP
            break
        async with self._change:
            worker.state = state
            self._change.notify_all()

    def end(self) -> None:
        """End the workers, at once: questions in flight are not waited for."""
        for task in self._revivals:
            task.cancel()
        for worker in self.workers:
            with suppress(Exception):  # it may be gone, and the cluster with it
                self._ray.kill(worker.actor)

    @property
    def about(self) -> Sequence[str]:
        """Lines that describe the engines, for the person at the terminal."""
        info = self.workers[0].info
        return info.about if info else ()

    def manifest_entry(self) -> Mapping[str, Any]:
        """Return what a manifest records: the machines, with the workers on each."""
        nodes: dict[str, dict[str, Any]] = {}
        for worker in self.workers:
            place = worker.place
            entry = nodes.setdefault(
                place.node, {"host": place.host, "address": place.address, "workers": 0, "gpus": []}
            )
            entry["workers"] += 1
            entry["gpus"] += place.gpus
        return {
            "kind": self._config.kind,
            "count": len(self.workers),
            "gpus_per_worker": self._config.gpus_per_worker,
            "in_flight": self._in_flight,
            "ray": self._ray.__version__,
            "nodes": list(nodes.values()),
        }

    def status(self) -> str:
        """Return how many workers are up, and how often one died."""
        up = sum(each.state is _State.UP for each in self.workers)
        deaths = sum(each.deaths for each in self.workers)
        return f"{up}/{len(self.workers)} workers{f', {deaths} deaths' if deaths else ''}"


@dataclass(frozen=True)
class RayExecutor:
    """Runs tasks in the workers of a pool, with one of the indexes that they search: an :class:`Executor`."""

    pool: RayPool
    key: str

    @property
    def model(self) -> RemoteHandle:
        """The model that every worker has."""
        info = self.pool.workers[0].info
        assert info is not None
        return RemoteHandle(info.model, info.lacks)

    @property
    def index(self) -> RemoteHandle | None:
        """The index that every worker searches."""
        info = self.pool.workers[0].info
        assert info is not None
        return info.indexes[self.key] if self.key else None

    def bind(self, task: QuestionTask, work: Work) -> Callable[[Question], Awaitable[Row]]:
        """Return a function that runs the task for a question in one of the workers, which count no work."""
        from ray import cloudpickle

        payload = _pickle(cloudpickle, task)
        # Sent with each question, since a worker that was started again has none; unpickled once.
        return partial(self.pool.run, key=stable_hash(payload.hex()), task=payload, index=self.key)

    def in_flight(self, batch_size: int) -> int:
        """Return ``batch_size`` for each worker; the pool was opened with as many or more."""
        return len(self.pool.workers) * batch_size

    def manifest_entry(self) -> Mapping[str, Any]:
        """Return what a manifest records of the workers."""
        return {"workers": self.pool.manifest_entry()}

    def status(self) -> str:
        """Return how busy the workers are."""
        return self.pool.status()


def _pickle(cloudpickle: Any, task: QuestionTask) -> bytes:
    """Pickle a task, with all that a file of the user's defines: no worker could import that file."""
    user_modules = [module for name, module in sys.modules.items() if name.startswith("own_method_")]
    for module in user_modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        payload: bytes = cloudpickle.dumps(task)
        return payload
    except (TypeError, AttributeError) as error:  # a lock, a file, a generator
        raise ConfigError(
            f"the method cannot be sent to other processes: {reason(error)}. Give workers=none, or let it "
            "open what it needs when it is called."
        ) from None
    finally:
        for module in user_modules:
            cloudpickle.unregister_pickle_by_value(module)


def _describe_difference(here: WorkerInfo | None, there: WorkerInfo | None) -> str:
    """Return what two workers opened differently, "" if nothing."""
    assert here is not None and there is not None
    if here.model != there.model:
        return f"models ({here.model}, {there.model})"
    return "indexes" if here.indexes != there.indexes else ""


def _unwrap(error: Any) -> BaseException:
    """Return what a worker raised: our own errors as they are, a defect with Ray's traceback."""
    cause = getattr(error, "cause", None)  # of Ray's errors one alone has it
    return cause if isinstance(cause, CoragError) else error
