"""Never do the same work twice: equal requests are joined while in flight and kept once finished."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")


class RequestCache(Generic[Key, Result]):
    """The last ``capacity`` results that were wanted, by key, and a task per key in flight.

    Each piece of work runs in a task of its own, so that a caller who gives up does not take it from those
    who joined. Failures are not kept: the next request tries afresh.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._finished: OrderedDict[Key, Result] = OrderedDict()
        self._running: dict[Key, asyncio.Task[Result]] = {}

    async def fetch(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> tuple[Result, bool]:
        """Return the result of this work, and whether it was there already, or on its way."""
        if key in self._finished:
            self._finished.move_to_end(key)
            return self._finished[key], True
        if (running := self._running.get(key)) is not None:
            return await asyncio.shield(running), True
        # Shielded: cancelling a caller must not cancel what others wait for.
        task = self._running[key] = asyncio.create_task(work())
        task.add_done_callback(lambda done: self._finish(key, done))
        return await asyncio.shield(task), False

    def cancel(self) -> None:
        """Give up what is in flight."""
        for task in self._running.values():
            task.cancel()

    def _finish(self, key: Key, task: asyncio.Task[Result]) -> None:
        del self._running[key]
        if task.cancelled() or task.exception() is not None:
            return
        self._finished[key] = task.result()
        while len(self._finished) > self._capacity:
            self._finished.popitem(last=False)
