"""One event loop in a thread of its own, which lets plain functions use engines that only coroutines can.

A notebook has a running event loop already, in which ``asyncio.run`` is refused. And an engine belongs to the
loop that opened it: with a loop per call it would have to be opened again each time. So all that the Python
interface opens lives on this loop, whoever calls.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


class Background:
    """An event loop that runs in a daemon thread until the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="corag", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for its result, from any thread but the loop's own.

        Ctrl-C cancels it and waits until it has cleaned up.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    async def await_(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and await its result on the caller's."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def at_exit(self, close: Any, timeout_s: float = 30.0) -> None:
        """Run the coroutine function ``close`` when Python ends, for at most ``timeout_s`` seconds."""

        def end() -> None:
            asyncio.run_coroutine_threadsafe(close(), self._loop).result(timeout_s)

        # Before threads are joined: by then, the executors that an engine closes with have shut down.
        threading._register_atexit(end) if hasattr(threading, "_register_atexit") else atexit.register(end)


@cache
def background() -> Background:
    """Return the one loop of this process, started when it is first wanted."""
    return Background()
