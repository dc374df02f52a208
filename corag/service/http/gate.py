"""The gate in front of all routes: it checks host and key, and adds security headers."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corag.service.errors import DEFECT, CallError, error_from_exception
from corag.service.http.stream import DONE, CallerGoneError, event
from corag.service.keys import Keys
from corag.service.log import Log, where
from corag.service.metrics import Metrics

# The page loads its own files and talks to this service, and nothing else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFETY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_WITH_KEY = ("/v1", "/mcp", "/metrics")
_QUIET = ("/healthz", "/readyz", "/metrics", "/assets")  # polled every few seconds, so not logged


@dataclass(frozen=True)
class AccessRules:
    """Who may send requests.

    Attributes:
        keys: API keys.
        hosts: Host headers that are accepted; none for any.
    """

    keys: Keys
    hosts: frozenset[str] = frozenset()


def allowed_hosts(host: str, extra_hosts: Sequence[str]) -> frozenset[str]:
    """Return the Host headers that a service on an address accepts; none for any.

    A web page can let its own name resolve to 127.0.0.1 and then read what a local service replies (DNS
    rebinding). So a service that listens on this machine alone accepts this machine's names alone.
    """
    local = host in _LOCAL or host.startswith("127.")
    names = {name.lower() for name in (*_LOCAL, host, *extra_hosts)}  # as browsers write them, and urlsplit
    return frozenset(names) if local or extra_hosts else frozenset()


class Gate:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, rules: AccessRules, metrics: Metrics, log: Log) -> None:
        self._app, self._rules = app, rules
        self._metrics, self._log = metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in or refuse it."""
        if scope["type"] != "http":  # no route speaks WebSocket
            await send({"type": "websocket.close", "code": 1000})
            return
        start, status = time.perf_counter(), 0
        given = Headers(scope=scope).get("x-request-id", "")
        state = scope.setdefault("state", {})
        request_id = state["request_id"] = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        code = None

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers.update({**_SAFETY, "x-request-id": request_id})
            await send(message)

        try:
            await self._let_in(scope, receive, send_safely)
        except CallerGoneError:
            status = status or 499  # as nginx says it
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its text may name paths and prompts
            refusal = error_from_exception(error)
            code = refusal.code
            if refusal.code == DEFECT:
                self._log("defect", error=where(error))
            if not status:
                response = reply(refusal)
                if isinstance(error, HTTPException):
                    response.headers.update(error.headers or {})  # such as which methods there are
                await response(scope, receive, send_safely)
            else:  # a stream that the service's end cuts off: the server would call it a defect if left open
                last = event(refusal.body) + DONE if scope["path"].startswith("/v1/") else b""
                with suppress(RuntimeError):  # complete already, or shorter than its header says
                    await send({"type": "http.response.body", "body": last})
        finally:
            # As it stands in the table of routes: a path itself may hold anything, and is never logged.
            route = scope["route"].path_format if "route" in scope else "other"
            self._metrics.request(route, status or 500)
            if not route.startswith(_QUIET):
                seconds = round(time.perf_counter() - start, 3)
                self._log(
                    "request",
                    request=request_id,
                    method=scope["method"],
                    route=route,
                    status=status,
                    code=code,
                    key=state.get("caller") or None,
                    seconds=seconds,
                )

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._rules.hosts and _host_name(headers.get("host", "")) not in self._rules.hosts:
            raise CallError(421, "this service is not asked under that name: see 'hosts'.", "unknown_host")
        if scope["path"].startswith(_WITH_KEY):
            caller = self._rules.keys.caller(headers.get("authorization", ""))
            if caller is None:
                raise CallError(
                    401, "send an API key of this service as the bearer token.", "invalid_api_key"
                )
            scope["state"]["caller"] = caller
        scope["app"] = self._app  # the router then raises what it refuses
        await self._app(scope, receive, send)


def _host_name(header: str) -> str:
    """Return the name in a Host header, without its port; "" if it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def reply(error: CallError) -> Response:
    """Return an error as a response in OpenAI's shape."""
    headers = dict(error.headers)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status == 413:
        headers["connection"] = "close"  # the rest of the body is not read
    return Response(orjson.dumps(error.body), error.status, headers, "application/json")
