"""One event loop in a thread of its own, which lets plain functions use engines that only coroutines can.

A notebook has a running event loop already, in which ``asyncio.run`` is refused. And an engine belongs to the
loop that opened it: with a loop per call it would have to be opened again each time. So all that the Python
interface opens lives on this loop, from any thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine

# Registers what ends all executors when Python ends. What we do then must come before it, so be registered
# after it: an engine closes in an executor.
from concurrent.futures import thread as _  # noqa: F401
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from corag.core.errors import BackendError, ConfigError
from eval.experiment.opening import last_words

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Returned_co = TypeVar("Returned_co", covariant=True)

# What was cancelled closes its files and tells the engine: there is time for that, and no reason to wait on.
_CLEAN_UP_S = 10.0
_END_S = 30.0  # vLLM's processes are given 10


class Background:
    """An event loop that runs in a daemon thread until the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="corag", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop. sys.exit() in a task ends it too: without another start all would wait for ever."""
        while True:
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
                return

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for its result. Ctrl-C cancels it, and waits until it ended.

        Raises :class:`ConfigError` on the loop's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ConfigError(
                "a method, or what watches its steps, cannot call a function that waits: await aask in place "
                "of ask."
            )
        future, end_event = self._submit(coroutine)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            end_event.wait(_CLEAN_UP_S)
            raise

    async def await_(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and await its result on the caller's, which may cancel it."""
        future, end_event = self._submit(coroutine)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            await asyncio.to_thread(end_event.wait, _CLEAN_UP_S)
            raise

    def _submit(
        self, coroutine: Coroutine[Any, Any, Result]
    ) -> tuple[concurrent.futures.Future[Result], threading.Event]:
        """Start a coroutine. The event says that it has ended, which a cancelled future says too soon."""
        if os.getpid() != self._process:
            coroutine.close()
            raise ConfigError(
                "this process was forked from one that has opened a model or an index, which cannot be used "
                'here: start processes with multiprocessing.get_context("spawn").'
            )
        end_event = threading.Event()

        async def run_and_signal() -> Result:
            try:
                return await coroutine
            except BackendError as error:
                # What the engine itself printed went to the log, and would go with it.
                if (log_lines := last_words()) and not hasattr(error, "__notes__"):
                    error.add_note(log_lines)
                raise
            except SystemExit as error:
                raise BackendError(
                    f"what was called ended Python (sys.exit({error.code!r})): raise an error instead."
                ) from error
            finally:
                end_event.set()

        return asyncio.run_coroutine_threadsafe(run_and_signal(), self._loop), end_event

    def at_exit(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the coroutine function ``close`` when Python ends."""

        def end() -> None:
            if os.getpid() == self._process:
                # An engine that does not end in time is ended by the processes' own watch on this one.
                with contextlib.suppress(concurrent.futures.TimeoutError):
                    asyncio.run_coroutine_threadsafe(close(), self._loop).result(_END_S)

        # atexit is too late: by then the executors that an engine closes in have shut down.
        threading._register_atexit(end)  # type: ignore[attr-defined]


_starting = threading.Lock()
_instances: list[Background] = []


def background() -> Background:
    """Return the one loop of this process, started when it is first wanted."""
    with _starting:
        if not _instances:
            _instances.append(Background())
        return _instances[0]


class WithTwin(Protocol[Arguments, Returned_co]):
    """A function that waits for its result, with a twin to await in its place."""

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned_co:
        """Wait for the result."""

    @property
    def twin(self) -> Callable[Arguments, Coroutine[Any, Any, Returned_co]]:
        """The same function for coroutines. It runs on the one loop, too, wherever it is awaited."""


def waits(
    function: Callable[Arguments, Coroutine[Any, Any, Result]],
) -> WithTwin[Arguments, Result]:
    """Make a coroutine function one that waits for its result; its ``twin`` is what coroutines await.

    So both have one signature and one docstring. ``open_model`` and ``open_index`` are written out: they look
    at the line of the caller's script before they go to the loop's thread.
    """

    @wraps(function)
    def wait(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return background().run(function(*args, **kwargs))

    @wraps(function)
    async def twin(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await background().await_(function(*args, **kwargs))

    twin.__name__ = twin.__qualname__ = f"a{function.__name__}"
    vars(wait)["twin"] = twin
    return cast("WithTwin[Arguments, Result]", wait)
