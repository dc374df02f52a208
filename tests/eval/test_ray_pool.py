"""How the pool hands out questions, takes workers back and places them, with a Ray that is scripted here."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from corag.core.errors import BackendError, ConfigError
from corag.core.runs.rows import Row
from corag.core.types import Question
from eval.experiment.workers import ray_pool as pools
from eval.experiment.workers.actors import Place, SearchServer, WorkerInfo
from eval.experiment.workers.config import ray_workers
from eval.experiment.workers.ray_pool import TRIES, RayPool
from eval.experiment.workers.resources import plan_workers
from eval.experiment.workers.search_servers import SearchServers
from retrieval.config import RetrieverConfig
from tests.messages import raises_message
from tests.worker_engines import open_scripted

PLACE = Place("node", "host", "10.0.0.1", 1, (), ())
INFO = WorkerInfo(PLACE, "model-a", (), (), {})


class RayError(Exception):
    """As Ray's: an actor is gone, or being started again."""


class RayTaskError(RayError):
    """As Ray's: what a method of an actor raised."""


class ActorDiedError(RayError):
    """As Ray's: an actor is gone for good."""


def remote(method: Callable[..., Awaitable[Any]]) -> Any:
    return SimpleNamespace(remote=method)


class Actor:
    """A worker whose process ends when it is asked what is deadly, with all that is asked of it then."""

    def __init__(self, deadly: frozenset[str], infos: Sequence[WorkerInfo]) -> None:
        self._deadly, self._infos = deadly, list(infos)
        self.deaths = 0
        self.most = 0
        self._asked: set[asyncio.Future[Row]] = set()
        self.where, self.open, self.run = map(remote, (self._where, self._open, self._run))

    async def _where(self, ports: int) -> Place:
        return PLACE

    async def _open(self, servers: Mapping[str, Any], free_memory: float | None) -> WorkerInfo:
        return self._infos[min(self.deaths, len(self._infos) - 1)]

    async def _run(self, question: Question, *_: object) -> Row:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Row] = loop.create_future()
        self._asked.add(answered)
        self.most = max(self.most, len(self._asked))
        if question.id in self._deadly:
            loop.call_later(0.01, self._die)
        else:
            row = Row(question, "Ada", (), {}, 0.0, "")
            loop.call_later(0.03, lambda: answered.done() or answered.set_result(row))
        try:
            return await answered
        finally:
            self._asked.discard(answered)

    def _die(self) -> None:
        self.deaths += 1
        for each in [each for each in self._asked if not each.done()]:
            each.set_exception(RayError("the actor died"))


@dataclass
class Ray:
    """What the pool uses of Ray, on machines with so many (GPUs, cores)."""

    machines: Sequence[tuple[float, float]] = ((0, 8),)
    deadly: frozenset[str] = frozenset()
    infos: Sequence[WorkerInfo] = (INFO,)
    actor: type[Actor] = Actor

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, ActorDiedError=ActorDiedError)
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *_, **__: None)
    )

    def remote(self, kind: type) -> Any:
        made = SimpleNamespace(remote=lambda *_: self.actor(self.deadly, self.infos))
        return SimpleNamespace(options=lambda **_: made)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"GPU": gpus, "CPU": cores}} for gpus, cores in self.machines]

    def cluster_resources(self) -> dict[str, float]:
        return {
            "GPU": sum(gpus for gpus, _ in self.machines),
            "CPU": sum(cores for _, cores in self.machines),
        }


async def pool_of(ray: Ray, count: int, in_flight: int) -> RayPool:
    pool = RayPool(ray, ray_workers(count=count), open_scripted, (), in_flight, SearchServers())
    await pool.open()
    return pool


async def answered(pool: RayPool, count: int) -> dict[str, Row]:
    asked = [Question(f"q{number}", "Who?") for number in range(count)]
    rows = await asyncio.wait_for(asyncio.gather(*(pool.run(each, "", b"", "") for each in asked)), 60)
    return {row.question.id: row for row in rows}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_RETRY_S", 0.01)


@pytest.mark.parametrize("workers", [1, 3])
async def test_a_deadly_question_is_the_only_one_of_its_worker_that_fails(workers: int) -> None:
    pool = await pool_of(Ray(deadly=frozenset({"q3"})), workers, in_flight=8)
    rows = await answered(pool, 40)
    assert [name for name, row in rows.items() if row.error] == ["q3"] and len(rows) == 40
    assert rows["q3"].error.startswith("WorkerDiedError: 3 workers died while they answered")
    assert sum(each.deaths for each in pool.workers) == TRIES, "no more deaths than the question's own"
    assert all(each.load == 0 and not each.exclusive for each in pool.workers)


async def test_several_deadly_questions_take_no_other_with_them() -> None:
    deadly = frozenset({"q0", "q1", "q9"})
    pool = await pool_of(Ray(deadly=deadly), 2, in_flight=4)
    rows = await answered(pool, 24)
    assert {name for name, row in rows.items() if row.error} == deadly
    assert max(each.actor.most for each in pool.workers) in (4, 5), "the others share workers"


async def test_a_question_meets_the_worker_that_remembers_it() -> None:
    """Four cells of a sweep over eight workers, each question answered when it happens to be."""
    pool = await pool_of(Ray(actor=Remembering), 8, in_flight=64)
    for _ in range(4):
        slots = asyncio.Semaphore(8 * 64)

        async def ask(number: int, slots: asyncio.Semaphore = slots) -> None:
            async with slots:
                await pool.run(Question(f"q{number}", "Who?"), "", b"", "")

        await asyncio.wait_for(asyncio.gather(*(ask(number) for number in range(1500))), 60)
    actors = [each.actor for each in pool.workers]
    assert sum(len(each.seen) for each in actors) < 1.1 * 1500, "a question is answered where it was before"
    assert min(len(each.seen) for each in actors) > 0.7 * 1500 / 8
    assert max(each.most for each in actors) <= 77, "a fifth above the mean"


async def test_engines_that_share_a_gpu_open_one_after_another() -> None:
    """vLLM takes what another engine fills meanwhile for its own; those of different GPUs need not wait."""
    Sharing.under_way, Sharing.most_at_once, Sharing.made = Counter(), Counter(), 0
    pool = await asyncio.wait_for(pool_of(Ray(actor=Sharing), 4, in_flight=1), 60)
    assert Sharing.most_at_once == {"0": 1, "1": 1, "all": 2}
    assert pool.status().startswith("4/4 workers")


async def test_a_search_server_is_started_once_for_the_workers_of_several_models() -> None:
    Serving.opened_with, servers = [], SearchServers()
    for _ in range(2):
        indexes = [RetrieverConfig(index=["here"]), RetrieverConfig(url=["http://localhost:1"])]
        pool = RayPool(Ray(actor=Serving), ray_workers(count=2), open_scripted, indexes, 1, servers)
        await pool.open()
        pool.end()
    assert len(servers.actors) == 1
    assert [[*each.values()] for each in Serving.opened_with] == [[{PLACE.node: "http://here"}]] * 4


async def test_a_question_that_no_longer_waits_to_be_alone_keeps_no_worker() -> None:
    pool = await pool_of(Ray(), 1, in_flight=2)
    await pool._acquire("q0", False)  # somebody is there, and stays
    waiting = asyncio.create_task(pool._acquire("q1", True))
    await asyncio.sleep(0.01)
    assert pool.workers[0].exclusive
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    worker = await asyncio.wait_for(pool._acquire("q2", False), 60)
    assert worker.load == 2 and not worker.exclusive


@pytest.mark.parametrize("count", [1, 2])
async def test_a_worker_that_comes_back_with_another_model_stays_out(count: int) -> None:
    other = replace(INFO, model="model-b", place=replace(PLACE, host="elsewhere"))
    pool = await pool_of(Ray(deadly=frozenset({"q0"}), infos=(INFO, other)), count, in_flight=1)
    with raises_message(BackendError):
        await answered(pool, 1)
    assert {each.info.model for each in pool.workers if each.info} == {"model-a"}
    assert pool.status().startswith(f"0/{count} workers")


@pytest.mark.parametrize(
    ("machines", "options", "count", "cores"),
    [
        ([(0, 64), (0, 8)], {}, 2, 8),
        ([(0, 0), (0, 8)], {}, 1, 8),
        ([(0, 2)], {"count": 32}, 32, 2 / 32),
        ([(4, 8), (8, 64)], {"gpus_per_worker": 4, "count": 2}, 2, 32),
        ([(4, 8), (8, 64)], {"gpus_per_worker": 4}, 3, 8),
        ([(2, 12)], {"gpus_per_worker": 0.3}, 6, 2),
    ],
)
def test_each_worker_gets_cores_that_a_machine_has_for_it(
    machines: list[tuple[float, float]], options: dict[str, Any], count: int, cores: float
) -> None:
    assert plan_workers(ray_workers(**options), Ray(machines)) == (count, pytest.approx(cores * 0.99))


def test_workers_that_no_machine_has_room_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="no room for any workers with 16 GPUs each"):
        plan_workers(ray_workers(gpus_per_worker=16), Ray([(8, 32), (0, 96)]))


class Remembering(Actor):
    """A worker that knows which questions it has seen, and answers each in a time of its own."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: set[str] = set()
        self._busy, self._draw = 0, random.Random(7)

    async def _run(self, question: Question, *_: object) -> Row:
        self._busy += 1
        self.most = max(self.most, self._busy)
        self.seen.add(question.id)
        await asyncio.sleep(0.02 * self._draw.random())
        self._busy -= 1
        return Row(question, "Ada", (), {}, 0.0, "")


class Sharing(Actor):
    """A worker of four, two on each of two GPUs, that takes a while to open."""

    under_way: ClassVar[Counter[str]] = Counter()
    most_at_once: ClassVar[Counter[str]] = Counter()
    made = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._gpu = str(Sharing.made // 2)
        Sharing.made += 1

    async def _where(self, ports: int) -> Place:
        return replace(PLACE, gpus=[self._gpu])

    async def _open(self, *_: object) -> WorkerInfo:
        for key in (self._gpu, "all"):
            self.under_way[key] += 1
            self.most_at_once[key] = max(self.most_at_once[key], self.under_way[key])
        await asyncio.sleep(0.05)
        for key in (self._gpu, "all"):
            self.under_way[key] -= 1
        return INFO


class Serving(Actor):
    """A worker that notes what it searches, and a server of an index."""

    opened_with: ClassVar[list[Mapping[str, Any]]] = []

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.ready = remote(self._ready)

    async def _where(self, ports: int) -> Place:
        return replace(PLACE, ports=[7000] * ports)

    async def _ready(self) -> str:
        return "http://here"

    async def _open(self, servers: Mapping[str, Any], free_memory: float | None) -> WorkerInfo:
        self.opened_with.append(servers)
        return INFO


class Unplaced(Actor):
    """A worker that Ray finds no place for."""

    async def _where(self, ports: int) -> Place:
        await asyncio.Event().wait()
        return PLACE


async def test_workers_without_a_place_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_PLACEMENT_S", 0.05)
    with pytest.raises(ConfigError) as told:
        await asyncio.wait_for(pool_of(Ray([(0, 8), (0, 8)], actor=Unplaced), 3, in_flight=1), 60)
    assert "only 0 of 3 workers found a place" in str(told.value)
    assert "asks for 0 GPUs and 3.96 cores" in str(told.value)


class Broken(SearchServer):
    """A search server that fails with something nobody foresaw."""

    async def _answer(self) -> None:
        raise RuntimeError("the heap is full")


def test_a_search_server_that_does_not_come_up_says_so_whatever_it_is() -> None:
    told: list[BackendError] = []

    def ask() -> None:
        try:
            Broken(RetrieverConfig(), "127.0.0.1", 1).ready()
        except BackendError as error:
            told.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(20)
    assert [str(each) for each in told] == ["the heap is full"]


def test_the_process_of_a_search_server_that_fails_later_ends() -> None:
    script = (
        "import time\n"
        "from eval.experiment.workers.actors import SearchServer\n"
        "class Failing(SearchServer):\n"
        "    async def _answer(self):\n"
        "        self._ready.set()\n"
        "        raise RuntimeError('no more')\n"
        "print(Failing(None, 'host', 1).ready(), flush=True)\n"
        "time.sleep(60)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert ended.returncode == 1 and "Traceback" not in ended.stdout
