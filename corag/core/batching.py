"""Micro-batching: many callers await one item each, one worker call serves them together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

_LONG_S = 0.05  # a batch of a small index takes a few milliseconds, one of Wikipedia half a second

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[In, Out]):
    order: tuple[int, int]  # priority, arrival
    item: In
    future: asyncio.Future[Out]


class MicroBatcher(Generic[In, Out]):
    """Collect what arrives while the worker is busy and pass it on as one batch.

    The worker runs in a thread of its own, so the event loop stays free and the worker need not be thread-
    safe, unless several batches may be under way. There is no waiting window: an idle worker
    starts at once with what the current turn of the event loop has queued, and load forms the batches. If the
    worker raises, every caller of that batch gets the exception; later batches are tried afresh.
    """

    def __init__(
        self,
        work: Callable[[Sequence[In]], Sequence[Out]],
        *,
        max_batch: int,
        name: str = "batch",
        at_once: int = 1,
    ) -> None:
        """``work`` maps a batch of up to ``max_batch`` items to as many results, in the same order.

        ``at_once``: batches that are under way at the same time, each in a thread. With two, what arrives
        does not wait for the slowest item of a batch. A further one starts only while another takes long:
        quick ones would only become smaller.
        """
        self._work = work
        self._max_batch = max_batch
        self._waiting: list[_Waiting[In, Out]] = []
        self._arrivals = 0
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_at = 0.0  # when a further batch may start
        self._began = 0.0  # when the newest batch did

    async def submit(self, item: In, priority: int = 0) -> Out:
        """Return the worker's result for one item.

        Lower priority goes first; equals go in order of arrival.
        """
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting((priority, self._arrivals), item, future))
        self._arrivals += 1
        self._start_batch()
        return await future

    def _start_batch(self, is_late: bool = False) -> None:
        """Start a batch if none is under way, or if one is that takes long; else look again in a while."""
        loop = asyncio.get_running_loop()
        self._tasks = {task for task in self._tasks if not task.done()}
        if not self._tasks or (is_late and self._waiting and len(self._tasks) < self._at_once):
            self._tasks.add(asyncio.create_task(self._drain()))
        elif len(self._tasks) < self._at_once and self._look_at < loop.time():
            self._look_at = loop.time() + _LONG_S
            loop.call_at(self._look_at, self._look)

    def _look(self) -> None:
        self._look_at = 0.0
        self._start_batch(is_late=time.monotonic() - self._began >= _LONG_S)

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # let every caller that is already runnable join the first batch
        while self._waiting:
            self._waiting.sort(key=lambda entry: entry.order)
            batch = [entry for entry in self._waiting[: self._max_batch] if not entry.future.cancelled()]
            del self._waiting[: self._max_batch]
            if not batch:
                continue
            self._began = time.monotonic()
            try:
                results = await loop.run_in_executor(
                    self._threads, self._work, [entry.item for entry in batch]
                )
                if len(results) != len(batch):
                    raise RuntimeError(f"the worker returned {len(results)} results for {len(batch)} items")
            except Exception as error:  # noqa: BLE001 - raised for every caller of this batch
                for entry in batch:
                    if not entry.future.done():
                        entry.future.set_exception(error)
                continue
            for entry, result in zip(batch, results, strict=True):
                if not entry.future.done():
                    entry.future.set_result(result)

    def close(self) -> None:
        """Wait for what is under way and stop the worker threads."""
        self._threads.shutdown(wait=True)
