"""The one client of servers that speak JSON: models, encoders, re-rankers and search servers.

A server fails in more ways than by its status: it hangs, breaks off in the middle, or a proxy before it
answers 200 with a page, half a reply, or one of another shape. Every fault is treated alike: the request is
sent again after a pause, to another server if there is one. So what a reply must hold is checked here, while
there is still a next attempt.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import urllib.request
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpx
import orjson

from corag.core.errors import BackendError, ConfigError, RequestRefusedError, reason
from corag.core.language.text import reply_excerpt
from corag.core.web.replies import MalformedReplyError
from corag.core.web.servers import is_loopback

_BUSY = frozenset({429, 503})  # overloaded, restarting, or behind such a proxy
_FAILED = frozenset({408, 500, 502, 504})
DENIED = frozenset({401, 403})
_LONGEST_PAUSE_S = 30.0  # a server that comes back has a model to load
# When servers are opened a wrong address is likelier than a fault, and a user waits for the sentence.
_OPENING_PAUSE_S, _LONGEST_OPENING_PAUSE_S = 0.2, 2.0
# A server that stayed silent for so long is not loading its model: another attempt would only wait as long
# again. In a run there is one more attempt, since the server may have died and been replaced.
_PATIENCE_S = 60.0
_CONNECT_S = 10.0
_LOOK_UP_S = 5.0  # for what computes nothing, such as a list of models: six attempts take half a minute
_NOTICE_S = 30.0  # a long reply of a model on a CPU takes as long
# Far more questions than are in flight: one that is forgotten loses a cached prefix.
_MAX_AFFINITIES = 100_000
_EXCERPT = 300  # characters of a reply in a message

Result = TypeVar("Result")
Fault = Literal["unreachable", "broken", "silent", "busy", "failed"]
"""Why there is no reply: nothing listens, the connection broke, time is up, 429 or 503, anything else."""


class NoReplyError(BackendError):
    """No attempt brought a usable reply. ``fault``: what the last one met."""

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault


class RefusedError(RequestRefusedError):
    """A server refused a request with a status that another attempt would not change."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _FaultError(Exception):
    """An attempt got no usable reply; another one may."""

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault


class JsonClient:
    """Requests to servers that do the same.

    Requests of one affinity stay on one server, for its prefix cache; any other goes to the server with the
    least in flight. A request that a server fails to answer is sent again, to another one if there is one.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        what: str,
        option: str,
        timeout_s: float,
        retries: int,
        connections: int,
        pause_s: float,
        key_variable: str = "",
    ) -> None:
        """Prepare requests. Nothing is sent yet.

        Nothing but the client holds the key, so that no message, manifest or trace can repeat it.

        Args:
            urls: the servers' addresses, to which routes are added.
            what: how messages call one, such as "the server".
            option: where its address was given.
            timeout_s: seconds to wait for a reply.
            retries: how often a failed request is sent again.
            connections: most that are open; further requests wait for one.
            pause_s: before the first time that a request is sent again; each further pause is twice as long.
            key_variable: environment variable that holds the servers' API key, if they want one.

        Raises:
            ConfigError: if a proxy or the certificates of the environment cannot be used.
        """
        self.urls = tuple(urls)
        self.retried = 0  # requests that were sent again, each time
        self._what, self._option, self._key_variable = what, option, key_variable
        self._retries, self._pause_s = retries, pause_s
        self._key = os.environ.get(key_variable, "") if key_variable else ""
        self._turns = list(self.urls)  # of servers that have as little to do, the first is asked
        self._load = Counter[str]()  # requests in flight, by server
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._stalls = StallNotifier(", ".join(self.urls))
        self._look_up_s = min(timeout_s, _LOOK_UP_S)
        self._client = open_client(
            self.urls,
            # Waiting for a free connection is our own load and no fault of the server's: it has no limit.
            timeout=httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s), pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
        )

    async def request(
        self,
        route: str,
        body: dict[str, Any] | None,
        parse: Callable[[Any], Result],
        affinity: str = "",
        on_events: Callable[[Sequence[Any]], None] | None = None,
    ) -> Result:
        """Send a request (GET without a body), again after a pause if it fails.

        Args:
            route: what is added to a server's address, such as "/chat/completions".
            body: what is sent.
            parse: takes the result out of the reply's JSON, and raises :class:`MalformedReplyError` if it is
                not there.
            affinity: requests of one affinity go to one server; "" for any.
            on_events: is called with the events so far of a reply that is streamed, each JSON; ``parse`` then
                takes the result out of the list of all.

        Raises:
            NoReplyError: if every attempt failed.
            RefusedError: if a server refused the request.
        """
        return await self._ask(partial(self._choose, affinity), route, body, parse, on_events)

    async def open(self, url: str, body: dict[str, Any] | None, parse: Callable[[Any], Result]) -> Result:
        """Ask one address while its server is opened: with short pauses, and once where nothing listens.

        ``url``: all of the address. Raises as :meth:`request` does.
        """
        return await self._ask(lambda _: url, "", body, parse, opening=True)

    async def _ask(
        self,
        choose: Callable[[str], str],
        route: str,
        body: dict[str, Any] | None,
        parse: Callable[[Any], Result],
        on_events: Callable[[Sequence[Any]], None] | None = None,
        *,
        opening: bool = False,
    ) -> Result:
        """Send a request until it is answered. ``choose``: returns a server, by the one that failed."""
        pause_s, longest_s = (
            (_OPENING_PAUSE_S, _LONGEST_OPENING_PAUSE_S) if opening else (self._pause_s, _LONGEST_PAUSE_S)
        )
        url, was_silent = "", opening
        with self._stalls.waiting() as on_reply:
            for number in range(self._retries + 1):
                if number:
                    await asyncio.sleep(min(pause_s * 2 ** (number - 1), longest_s))
                    self.retried += not opening
                url, start = choose(url), time.monotonic()
                self._load[url] += 1
                try:
                    return await self._send(url + route, body, parse, on_reply, on_events)
                except _FaultError as fault:
                    error = self._no_reply(url + route, fault, number + 1)
                finally:
                    self._load[url] -= 1
                is_silent = error.fault == "silent" and time.monotonic() - start >= _PATIENCE_S
                if (is_silent and was_silent) or (opening and error.fault == "unreachable"):
                    break
                was_silent |= is_silent
        raise error

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    def _choose(self, affinity: str, avoid: str) -> str:
        # A question's requests extend one another's prompts, so its home has most of each in its prefix
        # cache. A home that failed is left for good: what it had cached is gone, or out of reach.
        home = self._homes.get(affinity, "")
        if not home or home == avoid:
            free = [url for url in self._turns if url != avoid] or self._turns
            home = min(free, key=self._load.__getitem__)
            self._turns.remove(home)
            self._turns.append(home)
        if affinity:
            self._homes[affinity] = home
            self._homes.move_to_end(affinity)
            if len(self._homes) > _MAX_AFFINITIES:
                self._homes.popitem(last=False)
        return home

    async def _send(
        self,
        url: str,
        body: dict[str, Any] | None,
        parse: Callable[[Any], Result],
        on_reply: Callable[[], None],
        on_events: Callable[[Sequence[Any]], None] | None = None,
    ) -> Result:
        """Send one request once. Raises :class:`_FaultError` if another attempt may go better."""
        events: list[Any] = []
        headers = {"Content-Type": "application/json"}
        try:
            if body is None:
                response = await self._client.get(url, timeout=httpx.Timeout(self._look_up_s, pool=None))
            elif on_events is None:
                response = await self._client.post(url, content=orjson.dumps(body), headers=headers)
            else:
                async with self._client.stream(
                    "POST", url, content=orjson.dumps(body), headers=headers
                ) as response:
                    await _read_events(response, events, on_events)
        except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL) as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise _FaultError(text, _fault_of(error)) from None
        on_reply()
        status = response.status_code
        if status in _BUSY | _FAILED:
            fault: Fault = "busy" if status in _BUSY else "failed"
            raise _FaultError(f"status {status}: {self._excerpt(response)}", fault)
        if status != httpx.codes.OK:
            raise RefusedError(
                f"{self._what} {url} refused a request with status {status}: {self._excerpt(response)}"
                f"{self._key_advice(status)}",
                status,
            )
        try:
            return parse(events if on_events else orjson.loads(response.content))
        except orjson.JSONDecodeError:
            raise _FaultError(f"no JSON, but {self._excerpt(response)}", "failed") from None
        except MalformedReplyError as malformed:
            raise _FaultError(str(malformed), "failed") from None

    def _no_reply(self, url: str, fault: _FaultError, attempts: int) -> NoReplyError:
        proxy, section = proxy_variable(url), "".join(self._option.rpartition(".")[:2])
        through = f" through the proxy in {proxy}" if proxy else ""
        if fault.fault == "unreachable":
            problem, advice = "cannot be reached", f"start it, or correct '{self._option}'"
        else:
            problem = f"gave no usable reply in {attempts} attempt{'s' * (attempts > 1)}"
            patience = f"{section}timeout_s or {section}retries"
            advice = f"look at its log or correct '{self._option}'; raise {patience} if it is slow"
        return NoReplyError(f"{self._what} {url} {problem}{through} ({fault}): {advice}.", fault.fault)

    def _key_advice(self, status: int) -> str:
        if status not in DENIED or not self._key_variable:
            return ""
        return f". Put its API key into the environment variable {self._key_variable}"

    def _excerpt(self, response: httpx.Response) -> str:
        """Return how a body begins as :func:`reply_excerpt` does, without our key: servers may repeat it."""
        text = response.text.replace(self._key, "(the key)") if self._key else response.text
        return reply_excerpt(text, _EXCERPT)


async def _read_events(
    response: httpx.Response, events: list[Any], on_events: Callable[[Sequence[Any]], None]
) -> None:
    """Read a streamed reply; one that is none is its only event. Raises :class:`_FaultError`."""
    try:
        if not response.is_success or "event-stream" not in response.headers.get("content-type", ""):
            content = await response.aread()
            events += [orjson.loads(content)] if response.is_success else []
            return
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data != "[DONE]":
                events.append(orjson.loads(data))
                on_events(events)
    except orjson.JSONDecodeError as error:
        raise _FaultError(f"events that are no JSON: {error}", "failed") from None
    except MalformedReplyError as malformed:
        raise _FaultError(str(malformed), "failed") from None


def _fault_of(error: Exception) -> Fault:
    if isinstance(
        error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol | httpx.InvalidURL
    ):
        return "unreachable"
    if isinstance(error, httpx.TimeoutException):
        return "silent"
    return "failed" if isinstance(error, httpx.DecodingError) else "broken"


def open_client(urls: Sequence[str], **options: Any) -> httpx.AsyncClient:
    """Return a client of these servers, which reaches those of this machine without a proxy.

    People set HTTP_PROXY for the world outside; a proxy cannot reach this machine's own 127.0.0.1.
    Certificates are read for https alone. Raises :class:`ConfigError` for a proxy or a file of certificates
    in the environment that cannot be used.
    """
    try:
        is_secure = any(url.lower().startswith("https://") for url in urls)
        certificates = httpx.create_ssl_context() if is_secure else False
        direct = {url: None for url in urls if is_loopback(url)}
        # Where all are of this machine, the environment is not read: its proxy need not be one.
        is_outside = not urls or len(direct) < len(set(urls))
        return httpx.AsyncClient(verify=certificates, mounts=direct, trust_env=is_outside, **options)
    except (OSError, ImportError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(
            "a proxy or the certificates of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, "
            f"SSL_CERT_FILE) cannot be used ({reason(error)}): correct or unset the variable, or add the "
            "server to NO_PROXY."
        ) from None


def proxy_variable(url: str) -> str:
    """Return the name of the variable with the proxy that a request to this address goes through; "" if none.

    The proxy itself may hold a password.
    """
    parts = urlsplit(url)
    if is_loopback(url) or urllib.request.proxy_bypass(parts.netloc):
        return ""
    proxies = urllib.request.getproxies_environment()
    return next((f"{each.upper()}_PROXY" for each in (parts.scheme.lower(), "all") if proxies.get(each)), "")


class StallNotifier:
    """Prints a notice when servers that owe replies have not sent one for long.

    Without a word, a run that stands still looks dead. What counts is that nothing comes at all: while some
    requests are answered others may take their time.
    """

    def __init__(self, urls: str) -> None:
        """``urls``: the servers, as the notice names them."""
        self._line = f"corag: waiting for {urls}: no reply for {_NOTICE_S:.0f} s.\n"
        self._waiters = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def waiting(self) -> Iterator[Callable[[], None]]:
        """Wait for a reply within the block; what it yields is called whenever a server sends anything."""
        if not self._waiters:
            self._restart()
        self._waiters += 1
        try:
            yield self._restart
        finally:
            self._waiters -= 1
            if not self._waiters and self._timer:
                self._timer.cancel()

    def _restart(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_NOTICE_S, self._print)

    def _print(self) -> None:
        sys.stderr.write(self._line)
        sys.stderr.flush()
