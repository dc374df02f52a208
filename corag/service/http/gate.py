"""The gate in front of all routes: it checks host, origin, key and size, and adds security headers."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corag.core.errors import ConfigError
from corag.service.errors import CallError, error_from_exception, shutting_down
from corag.service.http.addresses import ADDRESSES, allowed_methods
from corag.service.http.stream import CallerGoneError
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
_ALLOWED_HEADERS = "authorization, content-type, mcp-session-id, mcp-protocol-version, last-event-id"
_OF_CLIENTS = re.compile(r"(?:x-stainless|openai)-[a-z0-9-]+")  # headers that OpenAI's clients add
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_ROUTES = (*(path for path in ADDRESSES if path != "/v1"), "/assets")
_WITH_KEY = ("/v1", "/mcp", "/metrics")
_QUIET = ("/healthz", "/readyz", "/metrics", "/assets")  # polled every few seconds, so not logged


@dataclass(frozen=True)
class AccessRules:
    """Who may send requests.

    Attributes:
        keys: API keys.
        hosts: Host headers that are accepted; none for any.
        origins: other origins whose pages may send requests.
    """

    keys: Keys
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()


def allowed_hosts(host: str, extra_hosts: Sequence[str]) -> frozenset[str]:
    """Return the Host headers that a service on an address accepts; none for any.

    A web page can let its own name resolve to 127.0.0.1 and then read what a local service replies (DNS
    rebinding). So a service that listens on this machine alone accepts this machine's names alone.
    """
    local = host in _LOCAL
    if not local and not extra_hosts:
        try:
            local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = False
    names = {name.lower() for name in (*_LOCAL, host, *extra_hosts)}  # as browsers write them, and urlsplit
    return frozenset(names) if local or extra_hosts else frozenset()


def check_host(name: str) -> None:
    """Raise :class:`ConfigError` for a name that no Host header can match, saying what to write."""
    try:
        if str(ipaddress.ip_address(name)) == name:
            return
    except ValueError:
        pass
    # A Host header brings a name and perhaps a port, which is not compared.
    right = _ascii_host(name if "//" in name else f"//{name}")
    if not right or name.lower() != right:
        advice = f"write '{right}'" if right else "name each host, such as answers.example.org"
        raise ConfigError(
            f"hosts has '{name}', which no request can match: a host is a name alone; {advice}."
        )


def check_origin(origin: str) -> None:
    """Raise :class:`ConfigError` for an origin that no browser sends, saying what to write."""
    right = canonical_origin(origin)
    if not right:
        raise ConfigError(
            f"'{origin}' is no origin: write scheme and host alone, such as https://chat.example.org."
        )
    if origin != right:
        raise ConfigError(
            f"origins has '{origin}', which no browser sends: it sends '{right}', so write that."
        )


def canonical_origin(url: str) -> str:
    """Return the origin of an address as browsers send it; "" if it has none.

    >>> canonical_origin("https://A.example:443/chat"), canonical_origin("chat.example.org")
    ('https://a.example', '')
    """
    host = _ascii_host(url)
    if not host or "://" not in url:
        return ""
    parts = urlsplit(url)
    port = parts.port
    host = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{host}{'' if port in (None, usual) else f':{port}'}"


class Gate:
    """An ASGI application around another."""

    def __init__(
        self, app: ASGIApp, doors: AccessRules, body_bytes: int, body_s: float, metrics: Metrics, log: Log
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
        if scope["type"] != "http":  # no route speaks WebSocket
            await send({"type": "websocket.close", "code": 1000})
            return
        start, status, complete = time.perf_counter(), 0, False

        async def send_safely(message: Message) -> None:
            nonlocal status, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _SAFETY.items():
                    headers[name] = value
                self._allow_origin(scope, headers)
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        try:
            await self._let_in(scope, receive, send_safely)
        except CallerGoneError:
            status = status or 499  # as nginx says it
        except asyncio.CancelledError:  # the service ends, and this took longer than there is time for
            if not status:
                await reply(shutting_down())(scope, receive, send_safely)
            elif not complete:  # a stream of MCP: the server would take its end for a defect
                with suppress(RuntimeError):  # fewer bytes than its header promised
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception as error:  # noqa: BLE001 - its text may name paths and prompts, so the caller gets a sentence of ours
            refusal = error_from_exception(error)
            if not isinstance(error, CallError):
                self._log("defect", error=where(error))
            if not status:
                await reply(refusal)(scope, receive, send_safely)
        finally:
            route = match_route(scope["path"])
            self._metrics.request(route, status or 500)
            if not route.startswith(_QUIET):
                seconds = round(time.perf_counter() - start, 3)
                self._log("request", method=scope["method"], route=route, status=status, seconds=seconds)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        if preflight := self._check_origin(scope, headers):
            await preflight(scope, receive, send)
            return
        # Clients look whether an address is there before they send anything, some of them without a key.
        methods = allowed_methods(scope["path"])
        if methods and (scope["method"] == "OPTIONS" or (scope["method"] == "HEAD" and "GET" not in methods)):
            await Response(status_code=204, headers={"allow": methods})(scope, receive, send)
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
        await self._app(scope, self._limit_body(receive), send)

    def _limit_body(self, receive: Receive) -> Receive:
        """Count what arrives, and give up on what arrives too slowly."""
        deadline = time.monotonic() + self._body_s
        size, whole = 0, False

        async def receive_limited() -> Message:
            nonlocal size, whole
            if whole:  # only the disconnect follows, which has no deadline
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
        if self._doors.hosts and _split_host(f"//{headers.get('host', '')}")[0] not in self._doors.hosts:
            raise CallError(421, "this service is not asked under that name: see 'hosts'.", "unknown_host")

    def _check_origin(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse pages from elsewhere. Return the reply to a browser that asks beforehand, if it does."""
        origin = headers.get("origin", "")
        if not origin or origin in self._doors.origins:
            asks = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
            return Response(status_code=204) if origin and asks else None
        if _split_host(origin)[1].lower() != headers.get("host", "").lower() or not headers.get("host"):
            raise CallError(403, "pages of other origins may not ask this service.", "unknown_origin")
        return None

    def _allow_origin(self, scope: Scope, headers: MutableHeaders) -> None:
        origin = Headers(scope=scope).get("origin", "")
        headers.add_vary_header("Origin")
        if origin and origin in self._doors.origins:
            headers["access-control-allow-origin"] = origin
            headers["access-control-allow-methods"] = "GET, POST, DELETE"
            requested_headers = Headers(scope=scope).get("access-control-request-headers", "").lower()
            headers["access-control-allow-headers"] = ", ".join(
                [_ALLOWED_HEADERS, *_OF_CLIENTS.findall(requested_headers)]
            )
            headers["access-control-expose-headers"] = "mcp-session-id, retry-after, x-should-retry"
            headers["cross-origin-resource-policy"] = "cross-origin"


def _ascii_host(url: str) -> str:
    """Return the host of an address in the letters that requests bring it in; "" if it has none."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is no number
        host = (parts.hostname or "").encode("idna").decode()
    except (ValueError, UnicodeError):
        return ""
    return "" if set("* ") & set(host) else host


def _split_host(url: str) -> tuple[str, str]:
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


def match_route(path: str) -> str:
    """Return which of a few routes a path is: a path itself may hold anything, and is never logged.

    >>> match_route("/v1/answers/secret"), match_route("/etc/passwd")
    ('/v1/answers', 'other')
    """
    if path in ("/", "/healthz", "/readyz", "/metrics"):
        return path
    return next((route for route in _ROUTES if path == route or path.startswith(f"{route}/")), "other")
