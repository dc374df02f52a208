"""Never do the same work twice: equal requests are joined while in flight and kept once finished."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Work(Generic[Result]):
    """A piece of work in flight, and how many wait for it."""

    task: asyncio.Task[Result]
    waiters: int = 0


class RequestCache(Generic[Key, Result]):
    """The last ``capacity`` results that were requested, by key, and a task per key in flight.

    Each piece of work runs in a task of its own, so that a caller that gives up does not take it from
    those that joined. When the last of them has given up, so is the work. Failures are
    not kept: the next request tries afresh.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._results: OrderedDict[Key, Result] = OrderedDict()
        self._running: dict[Key, _Work[Result]] = {}

    async def fetch(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> tuple[Result, bool]:
        """Return the result of this work, and whether it was there already, or on its way."""
        if key in self._results:
            self._results.move_to_end(key)
            return self._results[key], True
        is_shared = key in self._running
        if not is_shared:
            task = asyncio.create_task(work())
            self._running[key] = new_work = _Work(task)
            task.add_done_callback(lambda _: self._finish(key, new_work))
        running = self._running[key]
        running.waiters += 1
        try:
            # Shielded: cancelling a caller must not cancel what others wait for.
            return await asyncio.shield(running.task), is_shared
        finally:
            running.waiters -= 1
            if not running.waiters and not running.task.done():
                self._forget(key, running)  # at once: a new caller must not join what is being given up
                running.task.cancel()

    def forget(self) -> None:
        """Forget what is finished; what is in flight goes on."""
        self._results.clear()

    def cancel(self) -> None:
        """Give up what is in flight."""
        for running in list(self._running.values()):
            running.task.cancel()

    def _forget(self, key: Key, work: _Work[Result]) -> None:
        if self._running.get(key) is work:
            del self._running[key]

    def _finish(self, key: Key, work: _Work[Result]) -> None:
        self._forget(key, work)
        task = work.task
        if task.cancelled() or task.exception() is not None:
            return
        self._results[key] = task.result()
        while len(self._results) > self._capacity:
            self._results.popitem(last=False)
