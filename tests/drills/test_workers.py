"""What befalls workers of Ray: one dies, all die, the process that writes dies, the search server dies."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from corag.core.errors import BackendError
from corag.core.runs.folder import TRACES, read_rows
from corag.core.runs.manifest import Manifest
from corag.core.runs.rows import Row, SavedRow
from eval.experiment.run import RunConfig, answer_with
from eval.experiment.workers.cluster import connect
from eval.experiment.workers.config import ray_workers
from eval.experiment.workers.ray_pool import RayPool, ray_pool
from retrieval.config import RetrieverConfig
from tests.drills.answering import CONFIG, METHOD, ended, questions, started
from tests.drills.test_runs import ids, told
from tests.drills.test_servers import searching
from tests.worker_engines import open_scripted

pytest.importorskip("ray", reason="Ray is an extra: pip install 'corag[ray]'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def search() -> Iterator[RetrieverConfig]:
    """A search server over the story's passages."""
    with searching() as (url, _):
        yield RetrieverConfig(url=[url], cache_size=0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SavedRow]:
    """The rows of one process to which nothing happens."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert ended(started(out))[0] == 0
    return read_rows(out / METHOD)


def config_of(out: Path) -> RunConfig:
    return RunConfig(questions="drill", method=[METHOD], out=str(out), **{METHOD: CONFIG})  # type: ignore[arg-type]


class Watched:
    """An executor whose rows are counted, and to which something happens after some of them."""

    def __init__(self, pool: RayPool, search: RetrieverConfig, events: dict[int, Callable[[], None]]) -> None:
        self._executor, self._events, self._done = pool.executor(search), events, 0
        self.model, self.index = self._executor.model, self._executor.index
        self.in_flight, self.status = self._executor.in_flight, self._executor.status
        self.manifest_entry = self._executor.manifest_entry

    def bind(self, task, work):  # type: ignore[no-untyped-def]
        answer = self._executor.bind(task, work)

        async def one(question) -> Row:  # type: ignore[no-untyped-def]
            row = await answer(question)
            self._done += 1
            self._events.get(self._done, lambda: None)()
            return row

        return one


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on this machine, for pools one after the other: starting it takes longer than most of them."""
    with connect(ray_workers(count=1)):
        yield


@pytest.mark.usefixtures("cluster")
async def test_workers_that_die_lose_and_change_nothing(
    search: RetrieverConfig, undisturbed: dict[str, SavedRow], tmp_path: Path
) -> None:
    import ray

    async with ray_pool(ray_workers(count=2), partial(open_scripted, 0.1), [search], in_flight=4) as pool:
        first, second = pool.workers
        processes = {first.place.process, second.place.process}
        events = {
            8: lambda: os.kill(first.place.process, signal.SIGKILL),
            16: lambda: ray.kill(second.actor, no_restart=False),
        }
        executor = Watched(pool, search, events)
        folder = await answer_with(config_of(tmp_path), METHOD, questions(40), executor)
        assert [first.deaths, second.deaths] == [1, 1]
        assert "2/2 workers" in pool.status() or "deaths" in pool.status()
        processes |= {first.place.process, second.place.process}
    assert sorted(ids(folder / TRACES)) == sorted(undisturbed), "every question once"
    assert told(read_rows(folder)) == told(undisturbed)
    noted = Manifest.read(folder).last.record["workers"]
    assert noted["count"] == 2 and [node["workers"] for node in noted["nodes"]] == [2]
    assert all(map(gone, processes)), "no worker outlives its pool"


@pytest.mark.usefixtures("cluster")
async def test_without_a_worker_left_a_run_ends_in_a_sentence_and_goes_on_later(
    search: RetrieverConfig, tmp_path: Path
) -> None:
    fatal = partial(open_scripted, 0.01, "part 4?")
    config = config_of(tmp_path)
    async with ray_pool(ray_workers(count=1, restarts=0), fatal, [search], in_flight=1) as pool:
        with pytest.raises(BackendError, match=r"no worker is left .* the same command goes on"):
            await answer_with(config, METHOD, questions(6), pool.executor(search))
    assert ids(tmp_path / METHOD / TRACES) == ["q0", "q1", "q2", "q3"], "in the order of the questions"
    sane = partial(open_scripted, 0.01)
    async with ray_pool(ray_workers(count=1), sane, [search], in_flight=1) as pool:
        folder = await answer_with(config, METHOD, questions(6), pool.executor(search))
    assert ids(folder / TRACES) == [f"q{number}" for number in range(6)]


def gone(process: int, seconds: float = 90) -> bool:
    """Whether a process has ended, or does so soon."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def descendants(process: int) -> list[int]:
    """The processes that a process started, and those that these did."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [process]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def test_the_writer_killed_at_random_moments_is_gone_on_with_and_leaves_no_orphan(
    search: RetrieverConfig, undisturbed: dict[str, SavedRow], tmp_path: Path
) -> None:
    chance, traces, kept = random.Random(23), tmp_path / METHOD / TRACES, b""
    for how in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        options = ["--pause", 0.2, "--workers", 2, "--search", search.url[0]]
        process = started(tmp_path, *options, start_new_session=True)
        wanted = kept.count(b"\n") + chance.randint(2, 10)
        while not (traces.exists() and traces.read_bytes().count(b"\n") >= wanted):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        started_by_it = descendants(process.pid)
        assert len(started_by_it) > 4, "Ray's own processes and two workers"
        process.send_signal(how)
        process.communicate(timeout=300)
        assert [each for each in started_by_it if not gone(each)] == []
        before = traces.read_bytes()
        assert before.startswith(kept), "what had finished was not asked again"
        kept = before[: before.rfind(b"\n") + 1]
    status, said = ended(started(tmp_path, "--workers", 2, "--search", search.url[0]), 300)
    assert status == 0, said
    assert sorted(ids(traces)) == sorted(undisturbed), "every question once"
    assert told(read_rows(tmp_path / METHOD)) == told(undisturbed)
