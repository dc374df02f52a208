"""Workers as actors of Ray: who is free gets the next question, who dies is started again by Ray.

Scheduling, transport and the watch over processes are Ray's. What is done here: a bounded number of questions
is with each worker, the next goes to the one with the fewest, and those of a dead worker are handed out anew.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

from core.errors import BackendError, ConfigError, CoragError, reason
from core.gather import gather
from core.runs.rows import Row
from core.seeds import stable_hash
from core.types import Question
from eval.workers.actors import Addresses, EngineOpener, Greeting, Place, SearchServer, Worker
from eval.workers.cluster import connected
from eval.workers.config import WorkersConfig
from eval.workers.room import machines_of, share_out, told_of
from eval.workers.work import Elsewhere, Work
from generation.cached import REPLIES_KEPT
from generation.config import ModelConfig
from generation.open import open_generator
from retrieval.config import RetrieverConfig

TRIES = 3  # workers that a question may see die, all but the first alone, before it is taken for the reason
_BESIDES = 8  # calls that a worker takes beside questions: where it is, whether it is open
_LOOK_AGAIN_S = 0.5
_PLACED_S = 600.0  # until every worker's process runs; engines open later and may take longer
_SHOWN = 8  # workers whose loads are shown one by one


class _State(Enum):
    UP = auto()
    RESTARTING = auto()
    GONE = auto()


@dataclass(eq=False)
class Member:
    """A worker, as the pool knows it.

    ``load``: questions that are with it. ``kept``: for one question alone. ``why``: what ended it.
    """

    number: int
    actor: Any
    greeting: Greeting | None = None
    state: _State = _State.RESTARTING
    load: int = 0
    kept: bool = False
    deaths: int = 0
    why: str = ""

    @property
    def place(self) -> Place:
        """Where it is now."""
        assert self.greeting is not None
        return self.greeting.place


def engine_of(model: ModelConfig, capacity: int = REPLIES_KEPT) -> EngineOpener:
    """Return how a worker opens a model that remembers so many replies of a kind."""
    return partial(open_generator, model, capacity)


@asynccontextmanager
async def ray_pool(
    config: WorkersConfig,
    engine: EngineOpener,
    searched: Sequence[RetrieverConfig] = (),
    *,
    in_flight: int,
) -> AsyncIterator[RayPool]:
    """Start workers, and search servers for them, and end all of it with the block.

    Args:
        config: how many, with what.
        engine: opens a worker's engine, in its process; can be pickled.
        searched: what is searched; of folders there is one server per machine.
        in_flight: most questions that are with a worker at once.

    Raises:
        ConfigError: if Ray is not installed, or there is no room for the workers.
        BackendError: if an engine or index does not open.
    """
    with connected(config) as ray:
        pool = RayPool(ray, config, engine, searched, in_flight)
        try:
            await pool.open()
            yield pool
        finally:
            pool.end()


class RayPool:
    """Workers that are open. See :func:`ray_pool`."""

    def __init__(
        self,
        ray: Any,
        config: WorkersConfig,
        engine: EngineOpener,
        searched: Sequence[RetrieverConfig],
        in_flight: int,
    ) -> None:
        self._ray, self._config, self._in_flight = ray, config, in_flight
        self._engine = engine
        self._searched = {stable_hash(repr(each)): each for each in searched}
        self._addresses: Addresses = {}
        self._changed = asyncio.Condition()
        self._revivals: set[asyncio.Task[None]] = set()
        self.members: list[Member] = []
        self.servers: list[Any] = []

    async def open(self) -> None:
        """Start all processes, and wait until every engine is ready."""
        count, cpus = share_out(self._config, self._ray)
        kind = self._ray.remote(Worker).options(
            num_cpus=cpus,
            num_gpus=self._config.gpus_per_worker,
            max_restarts=self._config.restarts,
            max_task_retries=0,  # what is asked again, and how often, is decided here
            max_concurrency=self._in_flight + _BESIDES,
        )
        self.members = [Member(number, kind.remote(self._engine, self._searched)) for number in range(count)]
        try:
            served = [key for key, each in self._searched.items() if not each.url]
            places = await self._places(len(served), cpus)
            self._addresses = await self._serve(served, places)
            for member, greeting in zip(
                self.members, await gather(map(self._greeting, self.members)), strict=True
            ):
                member.greeting, member.state = greeting, _State.UP
        except self._ray.exceptions.RayTaskError as error:
            raise _cause(error) from None
        except self._ray.exceptions.RayError as error:
            raise BackendError(f"a worker ended before it was ready: {reason(error)}") from None
        self._refuse_differences()

    async def _places(self, ports: int, cpus: float) -> Sequence[Place]:
        """Wait until every worker has a place; :class:`ConfigError` if that takes too long."""
        placed: list[Place] = []

        async def place(member: Member) -> Place:
            placed.append(await self._where(member, ports))
            return placed[-1]

        try:
            async with asyncio.timeout(_PLACED_S):
                return await gather(map(place, self.members))
        except TimeoutError:
            raise ConfigError(
                f"only {len(placed)} of {len(self.members)} workers found a place within {_PLACED_S:g} "
                f"seconds. Each asks for {self._config.gpus_per_worker:g} GPUs and {cpus:.3g} cores, and the "
                f"machines have {told_of(machines_of(self._ray))}. Ask for fewer (--workers.count) or "
                "smaller ones (--workers.gpus_per_worker, --workers.cpus_per_worker), or end "
                "what else uses the cluster."
            ) from None

    async def _where(self, member: Member, ports: int) -> Place:
        place: Place = await member.actor.where.remote(ports)
        return place

    async def _greeting(self, member: Member) -> Greeting:
        greeting: Greeting = await member.actor.open.remote(self._addresses)
        return greeting

    async def _serve(self, keys: Sequence[str], places: Sequence[Place]) -> Addresses:
        """Serve what is searched on every machine that has workers, and return the addresses."""
        machines = {place.node: place for place in places}
        pinned = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        kind = self._ray.remote(SearchServer)
        found: dict[str, dict[str, Any]] = {}
        for place in machines.values():
            # Where all workers are on one machine, nobody else needs to reach the server.
            host = "127.0.0.1" if len(machines) == 1 else place.address
            for key, port in zip(keys, place.ports, strict=True):
                server = kind.options(
                    num_cpus=0,
                    max_restarts=-1,  # one that never comes up again is given up by its clients
                    max_concurrency=2,
                    scheduling_strategy=pinned(place.node, soft=False),
                ).remote(self._searched[key], host, port)
                self.servers.append(server)
                found.setdefault(key, {})[place.node] = server.ready.remote()
        return {key: {node: await ready for node, ready in by_node.items()} for key, by_node in found.items()}

    def _refuse_differences(self) -> None:
        first = self.members[0]
        for member in self.members[1:]:
            if told := _differing(first.greeting, member.greeting):
                raise ConfigError(
                    f"the workers on {first.place.host} and {member.place.host} opened different {told}: "
                    "give every machine the same versions, model and index."
                )

    def crew(self, searched: RetrieverConfig | None) -> RayCrew:
        """Return the workers as they search one of the indexes, or none."""
        return RayCrew(self, stable_hash(repr(searched)) if searched is not None else "")

    async def answer(self, question: Question, key: str, work: bytes, index: str) -> Row:
        """Have a question worked on by whoever has the fewest; by another if that one dies, up to ``TRIES``.

        Any question of a worker that dies may be the reason. So each then has a worker for itself: the one
        that is deadly ends nobody else's work any more, and the others are answered.

        Raises :class:`BackendError` if no worker is left.
        """
        started = time.perf_counter()
        why = ""
        for attempt in range(TRIES):
            alone = attempt > 0
            member = await self._seat(alone)
            try:
                row: Row = await member.actor.answer.remote(question, key, work, index)
                return row
            except self._ray.exceptions.RayTaskError as error:
                raise _cause(error) from None
            except self._ray.exceptions.RayError as error:
                why = reason(error)
                self._died(member, why)
            finally:
                await self._leave(member, alone)
        told = f"WorkerDiedError: {TRIES} workers died while they answered this question, the last: {why}"
        return Row(question, None, (), {}, time.perf_counter() - started, told)

    async def _seat(self, alone: bool) -> Member:
        """Wait for a worker that has room, or for one that has nothing else, and take a place there."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._idlest(alone) is not None or self._none_left())
                member = self._idlest(alone)
                if member is None:
                    raise BackendError(
                        f"no worker is left ({self.members[-1].why}): each of {len(self.members)} died more "
                        f"often than it is started again (--workers.restarts {self._config.restarts}), or "
                        "its machine is gone. What was finished is kept: the same command goes on from there."
                    )
                member.load += 1
                member.kept = alone
            if not alone or await self._emptied(member):
                return member

    async def _emptied(self, member: Member) -> bool:
        """Wait until a worker that is kept has answered all others; if it died of them, give it up."""
        emptied = False
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: member.load == 1 or member.state is not _State.UP)
            emptied = member.state is _State.UP
        finally:
            if not emptied:
                await self._leave(member, True)
        return emptied

    async def _leave(self, member: Member, alone: bool) -> None:
        member.load -= 1
        if alone:
            member.kept = False
        async with self._changed:
            self._changed.notify_all()  # not one: who wakes may wait for another worker

    def _idlest(self, alone: bool) -> Member | None:
        """Return whoever has the fewest questions and takes one more; to be alone needs no room yet."""
        ready = [each for each in self.members if each.state is _State.UP and not each.kept]
        ready = [each for each in ready if alone or each.load < self._in_flight]
        return min(ready, key=lambda each: each.load, default=None)

    def _none_left(self) -> bool:
        return all(each.state is _State.GONE for each in self.members)

    def _died(self, member: Member, why: str) -> None:
        """Note that a worker is dead, once however many of its questions tell, and wait for the next."""
        if member.state is _State.UP:
            member.state, member.why, member.deaths = _State.RESTARTING, why, member.deaths + 1
            task = asyncio.get_running_loop().create_task(self._revive(member))
            self._revivals.add(task)
            task.add_done_callback(self._revivals.discard)

    async def _revive(self, member: Member) -> None:
        """Wait until Ray has started a worker again and its engine is open; it is gone if Ray gives up."""
        state = _State.GONE
        while True:
            try:
                greeting = await self._greeting(member)
            except self._ray.exceptions.RayTaskError as error:
                member.why = reason(_cause(error))
                break
            except self._ray.exceptions.ActorDiedError as error:  # for good
                member.why = reason(error)
                break
            except self._ray.exceptions.RayError:  # it is being started, or died again meanwhile
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            if told := _differing(member.greeting, greeting):
                member.why = f"on {greeting.place.host} a worker that came back opened different {told}"
            else:
                member.greeting, state = greeting, _State.UP
            break
        async with self._changed:
            member.state = state
            self._changed.notify_all()

    def end(self) -> None:
        """End all processes that this started, at once: what they are at is not waited for."""
        for task in self._revivals:
            task.cancel()
        for actor in [*(member.actor for member in self.members), *self.servers]:
            with suppress(Exception):  # it may be gone, and the cluster with it
                self._ray.kill(actor)

    @property
    def about(self) -> Sequence[str]:
        """What the engines have to say."""
        greeting = self.members[0].greeting
        return greeting.about if greeting else ()

    @property
    def slots(self) -> int:
        """Questions that all workers together have at once."""
        return len(self.members) * self._in_flight

    def noted(self) -> Mapping[str, Any]:
        """Return what a manifest tells: the machines, with the workers on each."""
        nodes: dict[str, dict[str, Any]] = {}
        for member in self.members:
            place = member.place
            entry = nodes.setdefault(
                place.node, {"host": place.host, "address": place.address, "workers": 0, "gpus": []}
            )
            entry["workers"] += 1
            entry["gpus"] += place.gpus
        return {
            "kind": self._config.kind,
            "count": len(self.members),
            "gpus_per_worker": self._config.gpus_per_worker,
            "in_flight": self._in_flight,
            "ray": self._ray.__version__,
            "nodes": list(nodes.values()),
        }

    def said(self) -> str:
        """Say how many workers there are and how many questions each has."""
        up = [each for each in self.members if each.state is _State.UP]
        loads = [each.load for each in up]
        many = len(up) > _SHOWN
        busy = f"{min(loads)} to {max(loads)}" if many else " ".join(map(str, loads))
        died = sum(each.deaths for each in self.members)
        more = f", {died} died" if died else ""
        return f"{len(up)}/{len(self.members)} workers with {busy or 'no'} questions{more}"


@dataclass(frozen=True)
class RayCrew:
    """The workers of a pool with one of the indexes that they search: a :class:`Workforce`."""

    pool: RayPool
    key: str
    shares_nothing: bool = field(default=True, init=False)

    @property
    def model(self) -> Elsewhere:
        """The model that every worker has."""
        greeting = self.pool.members[0].greeting
        assert greeting is not None
        return Elsewhere(greeting.model, greeting.lacks)

    @property
    def index(self) -> Elsewhere | None:
        """What every worker searches."""
        greeting = self.pool.members[0].greeting
        assert greeting is not None
        return Elsewhere(greeting.indexes[self.key]) if self.key else None

    def doing(self, work: Work) -> Callable[[Question], Coroutine[Any, Any, Row]]:
        """Return the coroutine function that hands a question to a worker."""
        from ray import cloudpickle

        pickled = _pickled(cloudpickle, work)
        # Sent along each time, since a worker that was started again knows nothing; unpickled once.
        key = stable_hash(pickled.hex())

        async def one(question: Question) -> Row:
            return await self.pool.answer(question, key, pickled, self.key)

        return one

    def in_flight(self, batch_size: int) -> int:
        """Return how many questions are in flight: ``batch_size`` was told to the pool already."""
        return self.pool.slots

    def noted(self) -> Mapping[str, Any]:
        """Return what a manifest tells of the workers."""
        return {"workers": self.pool.noted()}

    def said(self) -> str:
        """Say how busy the workers are."""
        return self.pool.said()


def _pickled(cloudpickle: Any, work: Work) -> bytes:
    """Pickle work. What a file of the user's defines goes along as it is: no worker can import it."""
    own = [module for name, module in sys.modules.items() if name.startswith("own_method_")]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled: bytes = cloudpickle.dumps(work)
        return pickled
    except (TypeError, AttributeError) as error:  # a lock, a file, a generator
        raise ConfigError(
            f"the method cannot be sent to other processes: {reason(error)}. Leave out --workers, or let it "
            "open what it needs when it is called."
        ) from None
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _differing(here: Greeting | None, there: Greeting | None) -> str:
    """Say what two workers that should be alike opened differently, "" if nothing."""
    assert here is not None and there is not None
    if here.model != there.model:
        return f"models ({here.model}, {there.model})"
    return "indexes" if here.indexes != there.indexes else ""


def _cause(error: Any) -> BaseException:
    """Return what a worker raised: one of our sentences as it is, a defect with its traceback."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, CoragError) else error
