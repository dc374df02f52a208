"""What workers of Ray cost, and how many of them one writing process can keep busy.

The engine is scripted and of a fixed latency (``pausing.py``), so that the machine's cores are no part of it:
each question asks four times, one after the other. ``one_worker_ratio``: questions per second of one worker
against the same engine in this process. ``speedup_N``: N workers against one. Every measure is a whole run:
rows are written and flushed as in any other. Workers are started before the clock.
"""

from __future__ import annotations

import resource
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.pausing import HOPS, open_pausing, pausing_method
from corag.core.runs.folder import RunFolder
from corag.core.types import Question
from eval.experiment.executor import AnswerTask, Executor, LocalExecutor
from eval.experiment.loop import answer_into
from eval.experiment.workers.cluster import connect
from eval.experiment.workers.config import ray_workers
from eval.experiment.workers.ray_pool import ray_pool

COUNTS = (1, 2, 8, 32)
SLOTS = 4  # questions at once in an engine
ROUNDS = 12  # that each worker does of as many questions as it has slots


async def main(latency: float = 0.5, most: int = COUNTS[-1]) -> dict[str, float]:
    """Return ratios, the writing process's share of a core, and its rows per second with most workers.

    ``latency``: seconds that each request takes. ``most``: workers at most.
    """
    engine = partial(open_pausing, latency, SLOTS)
    figures: dict[str, float] = {"latency_s": latency, "requests_per_question": HOPS, "slots": SLOTS}
    with tempfile.TemporaryDirectory() as folder:
        here = LocalExecutor(await engine(), None)
        alone, _ = await _run(Path(folder, "here"), here, 1)
        rates: dict[int, float] = {}
        cores = 0.0
        with connect(ray_workers(count=1)):
            for count in (each for each in COUNTS if each <= most):
                start = time.perf_counter()
                async with ray_pool(ray_workers(count=count), engine, in_flight=SLOTS) as pool:
                    figures[f"start_{count}_s"] = time.perf_counter() - start
                    rates[count], cores = await _run(Path(folder, str(count)), pool.executor(None), count)
    figures["rows_per_s_in_process"] = alone
    figures |= {f"rows_per_s_{count}": rate for count, rate in rates.items()}
    figures["one_worker_ratio"] = rates[1] / alone
    figures |= {f"speedup_{count}": rate / rates[1] for count, rate in rates.items() if count > 1}
    last = max(rates)
    figures["driver_cpu_share"] = cores
    # On paper: what one core could write, had this process nothing to wait for.
    figures["driver_rows_per_s_at_most"] = rates[last] / cores
    figures["workers_at_saturation"] = rates[last] / cores / rates[1]
    return figures


async def _run(folder: Path, executor: Executor, workers: int) -> tuple[float, float]:
    """Answer questions; return them per second, and how many cores this process used meanwhile."""
    count = workers * SLOTS * ROUNDS
    questions = [Question(f"q{number}", f"Who wrote part {number}?", ("nobody",)) for number in range(count)]
    task, title = AnswerTask(pausing_method), f"{workers} workers"
    with RunFolder(folder, {}, {}) as run:
        start, cpu = time.perf_counter(), _cpu_s()
        await answer_into(run, questions, task, executor, title=title, batch_size=SLOTS)
        seconds = time.perf_counter() - start
    return count / seconds, (_cpu_s() - cpu) / seconds


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
