"""What every request goes through: who it is from, how large it is, and what every reply says for safety."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import CallError, of_failure, shutting_down
from service.http.stream import CallerGoneError
from service.keys import Keys
from service.log import Log, where
from service.metrics import Metrics

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
_ALLOWED = "authorization, content-type, mcp-session-id, mcp-protocol-version, last-event-id"
_OF_CLIENTS = re.compile(r"x-stainless-[a-z0-9-]+")  # what OpenAI's clients say of themselves
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_ROUTES = ("/v1/chat/completions", "/v1/models", "/v1/answers", "/v1/passages", "/mcp", "/assets")
_WITH_KEY = ("/v1", "/mcp", "/metrics")
_QUIET = ("/healthz", "/readyz", "/metrics", "/assets")  # asked every few seconds


@dataclass(frozen=True)
class Doors:
    """Who is let in.

    Attributes:
        keys: API keys.
        hosts: names under which the service may be asked; none for any.
        origins: web pages from elsewhere that may ask it.
    """

    keys: Keys
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()


def hosts_of(bound: str, named: Sequence[str]) -> frozenset[str]:
    """Return the names under which a service that listens on an address may be asked; none for any.

    A page elsewhere can let its own name point to 127.0.0.1, and then read what a browser is told there. So a
    service that listens on this machine alone answers to this machine's names alone.
    """
    local = bound in _LOCAL
    if not local and not named:
        try:
            local = ipaddress.ip_address(bound).is_loopback
        except ValueError:
            local = False
    names = {name.lower() for name in (*_LOCAL, bound, *named)}  # as browsers write them, and urlsplit
    return frozenset(names) if local or named else frozenset()


class Gate:
    """An ASGI application around another."""

    def __init__(
        self, app: ASGIApp, doors: Doors, body_bytes: int, body_s: float, metrics: Metrics, log: Log
    ) -> None:
        """``body_bytes``: longest body. ``body_s``: seconds that it may take to arrive."""
        self._app = app
        self._doors = doors
        self._body_bytes = body_bytes
        self._body_s = body_s
        self._metrics = metrics
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1000})
            return
        started, status = time.perf_counter(), 0

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _SAFETY.items():
                    headers[name] = value
                self._allow_origin(scope, headers)
            await send(message)

        try:
            await self._let_in(scope, receive, send_safely)
        except CallerGoneError:
            status = status or 499  # as nginx says it
        except asyncio.CancelledError:  # the service ends, and this took longer than there is time for
            if not status:
                await reply(shutting_down())(scope, receive, send_safely)
        except Exception as error:  # noqa: BLE001 - whatever it is, a caller is told nothing of it
            refused = of_failure(error)
            if not isinstance(error, CallError):
                self._log("defect", error=where(error))
            if not status:
                await reply(refused)(scope, receive, send_safely)
        finally:
            route = route_of(scope["path"])
            self._metrics.request(route, status or 500)
            if not route.startswith(_QUIET):
                seconds = round(time.perf_counter() - started, 3)
                self._log("request", method=scope["method"], route=route, status=status, seconds=seconds)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        if preflight := self._check_origin(scope, headers):
            await preflight(scope, receive, send)
            return
        if scope["path"].startswith(_WITH_KEY):
            caller = self._doors.keys.caller(headers.get("authorization", ""))
            if caller is None:
                raise CallError(
                    401, "this service wants an API key: send it as a bearer token.", "invalid_api_key"
                )
            scope.setdefault("state", {})["caller"] = caller
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._body_bytes:
            raise self._too_long()
        await self._app(scope, self._limited(receive), send)

    def _limited(self, receive: Receive) -> Receive:
        """Count what arrives, and give up on what arrives too slowly."""
        deadline = time.monotonic() + self._body_s
        size, whole = 0, False

        async def receive_limited() -> Message:
            nonlocal size, whole
            if whole:  # what follows is only the caller's leaving, which may take its time
                return await receive()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise CallError(408, "the body did not arrive in time.", "timeout") from None
            size += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if size > self._body_bytes:
                raise self._too_long()
            return message

        return receive_limited

    def _too_long(self) -> CallError:
        return CallError(
            413,
            f"the body has more than {self._body_bytes:,} bytes, which is all that is taken.",
            "body_too_large",
        )

    def _check_host(self, headers: Headers) -> None:
        if self._doors.hosts and _named(f"//{headers.get('host', '')}")[0] not in self._doors.hosts:
            raise CallError(421, "this service is not asked under that name: see --hosts.", "unknown_host")

    def _check_origin(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse pages from elsewhere. Return the reply to a browser that asks beforehand, if it does."""
        origin = headers.get("origin", "")
        if not origin or origin in self._doors.origins:
            asks = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
            return Response(status_code=204) if origin and asks else None
        if _named(origin)[1].lower() != headers.get("host", "").lower() or not headers.get("host"):
            raise CallError(403, "pages of other origins may not ask this service.", "unknown_origin")
        return None

    def _allow_origin(self, scope: Scope, headers: MutableHeaders) -> None:
        origin = Headers(scope=scope).get("origin", "")
        headers.add_vary_header("Origin")
        if origin and origin in self._doors.origins:
            headers["access-control-allow-origin"] = origin
            headers["access-control-allow-methods"] = "GET, POST, DELETE"
            wanted = Headers(scope=scope).get("access-control-request-headers", "").lower()
            headers["access-control-allow-headers"] = ", ".join([_ALLOWED, *_OF_CLIENTS.findall(wanted)])
            headers["access-control-expose-headers"] = "mcp-session-id, retry-after, x-should-retry"
            headers["cross-origin-resource-policy"] = "cross-origin"


def _named(url: str) -> tuple[str, str]:
    """Return the host of an address, and the host with its port; "" if it is no address."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.netloc
    except ValueError:
        return "", ""


def reply(error: CallError) -> Response:
    """Return an error as a response in OpenAI's shape."""
    headers = dict(error.headers)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status in (408, 413):
        headers["connection"] = "close"  # the rest of the body is not read
    return Response(orjson.dumps(error.body), error.status, headers, "application/json")


def route_of(path: str) -> str:
    """Return which of a few routes a path is: a path itself may hold anything, and is never logged.

    >>> route_of("/v1/answers/secret"), route_of("/etc/passwd")
    ('/v1/answers', 'other')
    """
    if path in ("/", "/healthz", "/readyz", "/metrics"):
        return path
    return next((route for route in _ROUTES if path == route or path.startswith(f"{route}/")), "other")
