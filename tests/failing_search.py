"""A search server that fails as it is told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.serving import free_port

PASSAGE = {"id": "1", "title": "T", "text": "x", "score": 0.5}
FAULTS = ("500", "503", "429", "truncated", "hang", "garbage", "wrong shape")
HANG_S = 3.0


class Failing:
    """A search server that finds one passage for every query, but where it is told to fail.

    ``faults``: what the next requests are answered with: one of FAULTS, a body, or "" for a right reply.
    ``refused``: queries that can never be searched for, with the reason; "" is all of them.
    """

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.asked = 0
        self.faults: Iterator[str | bytes] = iter(())
        self.refused: dict[str, str] = {}
        routes = [
            Route("/search", self._search, methods=["POST"]),
            Route("/passages", self._passages, methods=["POST"]),
            Route("/health", self._health),
        ]
        port = int(self.url.rpartition(":")[2])
        self.server = uvicorn.Server(
            uvicorn.Config(Starlette(routes=routes), port=port, log_level="critical")
        )
        self._thread = threading.Thread(target=self.server.run, daemon=True)

    async def _search(self, request: Request) -> Response:
        queries = (await request.json())["queries"]
        reasons = [self.refused.get(each, self.refused.get("")) for each in queries]
        found = [{"error": reason} if reason else {"hits": [PASSAGE]} for reason in reasons]
        return await self._reply({"results": found})

    async def _passages(self, _: Request) -> Response:
        return await self._reply({"passages": [PASSAGE]})

    async def _health(self, _: Request) -> Response:
        return await self._reply({"status": "ok", "fingerprint": "f"})

    async def _reply(self, right: Any) -> Response:
        self.asked += 1
        fault = next(self.faults, "")
        if isinstance(fault, bytes):
            return Response(fault)
        if fault in ("500", "503", "429"):
            return JSONResponse({"error": "as told"}, int(fault))
        if fault == "truncated":  # promises more than it sends
            return Response(b'{"results": [', headers={"content-length": "400"})
        if fault == "hang":
            await asyncio.sleep(HANG_S)
        wrong = {"garbage": Response(b"<html>\n<p>not JSON"), "wrong shape": JSONResponse({"answers": []})}
        return wrong.get(fault, JSONResponse(right))

    def __enter__(self) -> Failing:
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(5)
