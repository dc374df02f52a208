"""Server-sent events whose work is cancelled when the caller disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import orjson
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from corag.service.errors import CallError

Result = TypeVar("Result")

KEEP_ALIVE_S = 10.0  # proxies close connections that are silent for longer, often after 15 to 60 s
_LAST_EVENTS_S = 1.0  # for a caller that reads slowly, when the service ends
DONE = b"data: [DONE]\n\n"
_BEAT = b": still at it\n\n"


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
        await _cancel(working, leaving)


class EventStream(Response):
    """A response of events. Starlette's own would notice that a caller has left only when it sends."""

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        on_end: Callable[[], None],
        last_events: Callable[[], Sequence[bytes]] = tuple,
    ) -> None:
        """Take what to send.

        ``on_end`` is called when the response has ended, also by an error. ``last_events``: returns what a
        caller is sent whose answer is given up because the service ends.
        """
        super().__init__(None, 200, {}, "text/event-stream")
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"  # nginx would hold the events back
        self._events = events
        self._on_end = on_end
        self._last_events = last_events
        self._has_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the caller leaves."""
        try:
            with suppress(CallerGoneError):  # the status is sent already, so there is no error to reply with
                await until_gone(receive, self._send(send))
        except asyncio.CancelledError:  # the service ends
            if not self._has_started:
                raise  # it can still be refused with a status
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_EVENTS_S):
                    await self._send_last(send)
        finally:
            self._on_end()

    async def _send(self, send: Send) -> None:
        start: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        self._has_started = True
        await send(start)
        async with aclosing(_with_beats(self._events)) as events:
            async for piece in events:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_last(self, send: Send) -> None:
        for piece in self._last_events():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _with_beats(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield events, with a comment as heartbeat where none comes for :data:`KEEP_ALIVE_S`."""
    async with aclosing(events):
        following: asyncio.Task[bytes] | None = None
        try:
            while True:
                if following is None:
                    following = asyncio.create_task(_next(events))
                await asyncio.wait({following}, timeout=KEEP_ALIVE_S)
                if not following.done():
                    yield _BEAT
                    continue
                task, following = following, None
                if (piece := task.result()) == b"":
                    return
                yield piece
        finally:
            if following is not None:
                await _cancel(following)


async def _next(events: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(events, b"")


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended: the place of a question is free then."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def error_event(error: CallError) -> bytes:
    """Write an error as an event, for a stream that has begun already."""
    return event(error.body)
