"""Servers in a thread that stand in for real ones, and all the ways in which servers fail."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.serving import free_port

FAULTS = {
    "500": lambda: JSONResponse({"error": "as told"}, 500),
    "503": lambda: JSONResponse({"error": "as told"}, 503),
    "429": lambda: JSONResponse({"error": "as told"}, 429),
    "truncated": lambda: Response(b'{"choices": [{"te', headers={"content-length": "400"}),
    "hang": lambda: Response(b""),  # after longer than anyone waits
    "empty": lambda: Response(b""),
    "garbage": lambda: Response(b'{"choices": [{"text": "ye\x1b[2J'),
    "a page": lambda: Response("<html>Sign in to the network</html>", media_type="text/html"),
    "no object": lambda: JSONResponse(["choices"]),
    "no choices": lambda: JSONResponse({"choices": [], "usage": {}, "data": [{}]}),
    "null text": lambda: JSONResponse(
        {"choices": [{"text": None, "token_ids": [1], "finish_reason": "stop"}], "usage": {}, "data": None}
    ),
    "other lengths": lambda: JSONResponse(
        {
            "choices": [
                {
                    "text": "y",
                    "token_ids": [1, 2, 3],
                    "finish_reason": "stop",
                    "logprobs": {"token_logprobs": [-0.1]},
                }
            ],
            "usage": {},
            "data": [{"id": 7}],
        }
    ),
}
HANGS_S = 2.0


async def failing(fault: str) -> Response:
    """Fail as a server may: by its status, by silence, or by nonsense with status 200."""
    await asyncio.sleep(HANGS_S if fault == "hang" else 0)
    return FAULTS[fault]()


def now_and_then(share: float, seed: int) -> tuple[list[str], Callable[[], str]]:
    """Return a list of the faults that were met, and what makes a share of all requests fail."""
    dice, met = random.Random(seed), list[str]()

    def fault() -> str:
        if dice.random() > share:
            return ""
        met.append(dice.choice(list(FAULTS)))
        return met[-1]

    return met, fault


class Served:
    """A server at ``url``, in a thread, for the length of a ``with`` block.

    ``faults``: says how the next request fails, "" if it does not. ``requests``: how many there were.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self.faults: Callable[[], str] = lambda: ""
        self.requests = 0
        self.url = f"http://127.0.0.1:{free_port()}"
        app, port = self._faulty(Starlette(routes=routes)), int(self.url.rpartition(":")[2])
        config = uvicorn.Config(app, port=port, log_level="critical", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.server.run, daemon=True)

    def _faulty(self, app: ASGIApp) -> ASGIApp:
        async def faulty(scope: Scope, receive: Receive, send: Send) -> None:
            is_request = scope["type"] == "http"
            self.requests += is_request
            failing_now = is_request and self.faults()
            await ((await failing(failing_now)) if failing_now else app)(scope, receive, send)

        return faulty

    def __enter__(self) -> Self:
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(5)
