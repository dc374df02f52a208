"""The client of servers that speak JSON: what is sent again, where, after which pauses, and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from corag.core.errors import RequestRefusedError
from corag.core.web import json_client
from corag.core.web.json_client import JsonClient, NoReplyError
from corag.core.web.replies import value_at
from tests.generation.standing_in import Served
from tests.messages import raises_message


class Echo(Served):
    """A server that returns the body, with the statuses that it is told to fail with before."""

    def __init__(self) -> None:
        self.statuses: Iterator[int] = iter(())
        super().__init__([Route("/say", self._say, methods=["POST"])])

    async def _say(self, request: Request) -> Response:
        if status := next(self.statuses, 0):
            return JSONResponse({"error": request.headers.get("authorization", "as told")}, status)
        return JSONResponse(await request.json())


def client(*urls: str, retries: int = 3, pause_s: float = 0.5, key_variable: str = "") -> JsonClient:
    return JsonClient(
        urls, what="the server", option="--urls", timeout_s=5, retries=retries, connections=4,
        pause_s=pause_s, key_variable=key_variable,
    )  # fmt: skip


def said(reply: Any) -> str:
    return value_at(reply, "word", kind=str)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)

    # Not of the module itself: the servers here sleep, too.
    loop = asyncio.get_running_loop
    monkeypatch.setattr(json_client, "asyncio", SimpleNamespace(sleep=sleep, get_running_loop=loop))
    return taken


async def test_pauses_grow_up_to_the_longest_and_the_first_success_counts(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_client, "_LONGEST_PAUSE_S", 3)
    with Echo() as server:
        asking = client(server.url, retries=9)
        server.statuses = iter([500, 503, 429, 502])
        assert await asking.request("/say", {"word": "so"}, said) == "so"
        assert pauses == [0.5, 1, 2, 3] and asking.retried == 4
        pauses.clear()
        server.statuses = iter([500] * 99)
        with raises_message(NoReplyError):
            await client(server.url, retries=1).request("/say", {"word": "so"}, said)
        assert pauses == [0.5], "none behind the last"


async def test_what_another_attempt_would_not_change_is_raised_at_once(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    with Echo() as server:
        asking = client(server.url, key_variable="MY_KEY")
        for status in (400, 401, 404):
            server.statuses = iter([status])
            with raises_message(RequestRefusedError) as refused:
                await asking.request("/say", {"word": "so"}, said)
            assert "(the key)" in str(refused.value) and "sk-secret" not in str(refused.value)
        assert not pauses


async def test_servers_take_turns_and_a_failing_one_is_left(pauses: list[float]) -> None:
    with Echo() as a, Echo() as b:
        asking = client(a.url, b.url)
        for _ in range(4):
            await asking.request("/say", {"word": "so"}, said)
        assert (a.requests, b.requests) == (2, 2)
        a.statuses = iter([500] * 99)
        assert await asking.request("/say", {"word": "so"}, said, "question") == "so"
        assert (a.requests, b.requests) == (3, 3)
        for _ in range(3):
            await asking.request("/say", {"word": "so"}, said, "question")
        assert (a.requests, b.requests) == (3, 6), "its home is the other now"


async def test_a_server_that_is_not_there_is_waited_for_in_a_run_but_not_when_it_is_opened(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy", "no_proxy", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://bob:secret@127.0.0.1:9")  # nothing listens there
    url = "http://model.example:1"
    with pytest.raises(NoReplyError, match="through the proxy in HTTP_PROXY") as error:
        await client(url).request("/say", {}, said)
    assert error.value.fault == "unreachable" and "secret" not in str(error.value) and len(pauses) == 3
    pauses.clear()
    with raises_message(NoReplyError):
        await client(url).open(f"{url}/say", None, said)
    assert not pauses
