"""Server-sent events, and work that is cancelled when the caller disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

Result = TypeVar("Result")

KEEP_ALIVE_S = 10.0  # proxies close connections that are silent for longer, often after 15 to 60 s
DONE = b"data: [DONE]\n\n"
BEAT = b": still at it\n\n"


class CallerGoneError(Exception):
    """The caller closed the connection before there was an answer."""


def event(data: Any) -> bytes:
    """Write one event."""
    return b"data: " + orjson.dumps(data) + b"\n\n"


async def until_gone(receive: Receive, work: Awaitable[Result]) -> Result:
    """Await some work, and cancel it as soon as the caller closes the connection.

    Raises :class:`CallerGoneError` then.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise CallerGoneError
    finally:
        # The place of a question is free only once its work has ended.
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """A response of events, which ends when the caller leaves."""

    def __init__(self, events: AsyncGenerator[bytes, None], on_end: Callable[[], None]) -> None:
        """``on_end`` is called when the response has ended, also by an error."""
        # nginx would hold the events back
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._events, self._on_end = events, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the caller leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()
            self._on_end()
