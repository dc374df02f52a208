"""Requests to servers that may fail: which server gets one, when it is sent again, what counts as a reply.

A server fails in more ways than by its status: it hangs, breaks off in the middle, or a proxy before it
answers 200 with a page, half a reply, or one of another shape. Every fault is treated alike: the request is
sent again after a pause. So what a reply must hold is checked here, while there is still a next attempt.
"""

from __future__ import annotations

import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from corag.core.errors import BackendError, ConfigError, RequestRefusedError
from corag.core.machine import raise_file_limit
from corag.core.proxies import describe_proxy, open_client
from corag.core.replies import (
    FaultError,
    SilentError,
    StatusError,
    UnreachableError,
    send,
)
from corag.core.servers import StallNotifier, TryAgainError, print_note, retrying
from corag.generation.config import ModelConfig
from corag.generation.http.wording import Wording

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # a server that comes back has a model to load
# When servers are opened a wrong address is likelier than a fault, and a user waits for the sentence.
_FIRST_PAUSE_OPENING_S, _LONGEST_PAUSE_OPENING_S = 0.2, 2.0
# A server that stayed silent for so long is not loading its model: another attempt would only wait as long
# again. In a run there is one more attempt, since the server may have died and been replaced.
_PATIENCE_S = 60.0
# Far more questions than are in flight: one that is forgotten loses a cached prefix.
_MAX_AFFINITIES = 100_000

Result = TypeVar("Result")


@dataclass(slots=True)
class Endpoint:
    """One server, and how many requests are in flight to it.

    ``exact``: its model has the very name that was configured; else it is its only one. ``wording``: how it
    wants to be asked, as far as it has said so.
    """

    url: str
    model: str
    exact: bool
    load: int = 0
    wording: Wording = field(default_factory=Wording)


Server = TypeVar("Server", bound=Endpoint)


class FaultyServerError(BackendError):
    """A server is there, but fails at a request whenever it is asked."""


class Endpoints(Generic[Server]):
    """Servers of one model, and the requests in flight to them.

    Requests of one affinity stay on one server, for its prefix cache; a new affinity goes to the server with
    the least in flight. A request that a server fails to answer is sent again, to the server with the least
    in flight, after a pause.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        servers: Sequence[Server],
        retries: int,
        most_connections: int = sys.maxsize,
    ) -> None:
        """``servers``: at least one. ``retries``: how often a failed request is sent again.

        ``most_connections``: those that the client opens.
        """
        self.servers = list(servers)
        self.retried = 0  # requests that were sent again, each time
        self._client = client
        self._retries, self._most_connections = retries, most_connections
        self._said_that_some_wait = False
        self._homes: OrderedDict[str, Server] = OrderedDict()
        self._stalls = StallNotifier(", ".join(server.url for server in servers))

    async def request(
        self,
        route: str,
        body: Callable[[Server], dict[str, Any]],
        parse: Callable[[Any], Result],
        affinity: str,
    ) -> Result:
        """Send a request, again after a pause if it fails, to another server if there is one.

        Args:
            route: path of the address, such as "/v1/completions".
            body: builds what is sent to a server: servers differ in the name of the model.
            parse: takes the result out of the reply's JSON, and raises :class:`MalformedReplyError` if it is
                not there.
            affinity: requests of one affinity go to one server; "" for any.

        Raises:
            BackendError: if every attempt failed.
            RequestRefusedError: if a server refused the request.
        """
        failed_server: Server | None = None
        waited_in_vain = False

        async def attempt(number: int) -> Result:
            nonlocal failed_server, waited_in_vain
            server = failed_server = self._choose(affinity, avoid=failed_server)
            self.retried += number > 0
            server.load += 1
            self._say_if_some_wait()
            start = time.monotonic()
            try:
                return await send_adapted(
                    self._client, server.url, route, body(server), parse, on_reply, server.wording
                )
            except FaultError as fault:
                error = self._no_reply(server, fault, number + 1)
                patient = isinstance(fault, SilentError) and time.monotonic() - start >= _PATIENCE_S
                if patient and waited_in_vain:
                    raise error from None
                waited_in_vain |= patient
                raise TryAgainError(error) from None
            except StatusError as refusal:
                raise RequestRefusedError(
                    f"the server {server.url} refused a request with {refusal}"
                ) from None
            finally:
                server.load -= 1

        pauses = {"first_pause_s": _FIRST_PAUSE_S, "longest_pause_s": _LONGEST_PAUSE_S}
        with self._stalls.waiting() as on_reply:
            return await retrying(attempt, self._retries + 1, **pauses)

    async def close(self) -> None:
        """Close the connections. The servers go on."""
        await self._client.aclose()

    def _choose(self, affinity: str, avoid: Server | None) -> Server:
        # A question's requests extend one another's prompts, so its home has most of each in its prefix
        # cache. A home that failed is left for good: what it had cached is gone, or out of reach.
        home = self._homes.get(affinity)
        if home is None or home is avoid:
            free = [server for server in self.servers if server is not avoid] or self.servers
            home = min(free, key=lambda server: server.load)
        if affinity:
            self._homes[affinity] = home
            self._homes.move_to_end(affinity)
            if len(self._homes) > _MAX_AFFINITIES:
                self._homes.popitem(last=False)
        return home

    def _say_if_some_wait(self) -> None:
        if not self._said_that_some_wait and sum(each.load for each in self.servers) > self._most_connections:
            self._said_that_some_wait = True
            print_note(
                f"{self._most_connections} requests to servers are in flight at once, and the others wait: "
                "this process may open no more files ('ulimit -Hn'). A smaller --batch_size asks less."
            )

    def _no_reply(self, server: Server, fault: FaultError, attempts: int) -> BackendError:
        return BackendError(
            f"no reply after {attempts} attempt{'s' * (attempts > 1)}, the last to {server.url}"
            f"{_through(server.url)} ({fault}). "
            "Look at the server's log; raise timeout_s or retries if it is only slow."
        )


def address(url: str) -> str:
    """Return a server's address as routes are added to it: people write it with and without /v1.

    >>> address("http://localhost:11434/v1/"), address("http://localhost:8000")
    ('http://localhost:11434', 'http://localhost:8000')
    """
    return url.rstrip("/").removesuffix("/v1")


def require_one_model(endpoints: Sequence[Endpoint]) -> None:
    """Refuse servers of models of different names, unless each has the name that was configured."""
    first = endpoints[0]
    for other in endpoints[1:]:
        if other.model != first.model and not (first.exact and other.exact):
            raise ConfigError(
                f"the server {first.url} serves '{first.model}' and {other.url} serves '{other.model}', but "
                "a run asks one model: leave one of them out of --model.urls, or start both under one name "
                "with --served-model-name."
            )


def count_connections() -> int:
    """Return how many connections this process can have to the servers of a model.

    A quarter of the files that it can open is left to indexes, logs and other servers.
    """
    return max(1, raise_file_limit() * 3 // 4)


def connect(config: ModelConfig, most_connections: int) -> httpx.AsyncClient:
    """Return a client that sends the key in the environment, if there is one.

    Requests beyond ``most_connections`` wait for a free connection.

    Nothing else holds the key, so that no message, manifest or trace can repeat it. Raises
    :class:`ConfigError` if the options name a variable that is not set.
    """
    variable = config.api_key_variable
    if variable != ModelConfig.api_key_variable and variable not in os.environ:
        raise ConfigError(
            f"the environment variable {variable} is not set: put the server's API key there, or correct "
            "--model.api_key_variable, which is its name."
        )
    key = os.environ.get(variable, "")
    return open_client(
        config.urls,
        # Waiting for a free connection is no fault of the server's.
        timeout=httpx.Timeout(config.timeout_s, connect=min(10.0, config.timeout_s), pool=None),
        # As many as there can be: the run bounds what is in flight, and the server's queue knows priorities,
        # ours does not.
        limits=httpx.Limits(max_connections=most_connections, max_keepalive_connections=None),
        headers={"Authorization": f"Bearer {key}"} if key else {},
    )


async def send_adapted(
    client: httpx.AsyncClient,
    url: str,
    route: str,
    body: dict[str, Any] | None,
    parse: Callable[[Any], Result],
    on_reply: Callable[[], None],
    wording: Wording,
) -> Result:
    """Do what :func:`send` does, once more for each parameter that the server says it wants otherwise.

    ``url``: the server's address. ``wording``: what it has said so far; noted there.
    """
    if body is None:
        return await send(client, url + route, None, parse, on_reply)
    while True:
        adapted_body = wording.adapt(body)
        try:
            return await send(client, url + route, adapted_body, parse, on_reply)
        except StatusError as refusal:
            # Another request that was in flight beside this one may have learned it meanwhile.
            has_learned = wording.adapt(body) != adapted_body
            if not has_learned and not wording.learn(refusal.status, refusal.reply, body, url):
                raise


async def send_opening(
    client: httpx.AsyncClient,
    url: str,
    route: str,
    body: dict[str, Any] | None,
    parse: Callable[[Any], Result],
    retries: int,
    wording: Wording,
) -> Result:
    """Do what :func:`send_adapted` does, again after short pauses if it fails, while a server is opened.

    Raises :class:`BackendError` if nothing listens there, which waiting would not change, or is silent;
    :class:`FaultyServerError` if the last attempt failed; :class:`StatusError`.
    """
    silence = StallNotifier(url)

    async def attempt(number: int) -> Result:
        start = time.monotonic()
        try:
            with silence.waiting() as on_reply:
                return await send_adapted(client, url, route, body, parse, on_reply, wording)
        except UnreachableError as fault:
            raise BackendError(
                f"the server {url} cannot be reached{_through(url)} ({fault}): start it, or correct "
                "--model.urls."
            ) from None
        except FaultError as fault:
            silent = isinstance(fault, SilentError)
            error = (BackendError if silent else FaultyServerError)(
                f"{url}{route} does not answer as it should{_through(url)}, after {number + 1} "
                f"attempt{'s' * (number > 0)} ({fault}): look at the server's log, or correct --model.urls."
            )
            if silent and time.monotonic() - start >= _PATIENCE_S:
                raise error from None
            raise TryAgainError(error) from None

    pauses = {"first_pause_s": _FIRST_PAUSE_OPENING_S, "longest_pause_s": _LONGEST_PAUSE_OPENING_S}
    return await retrying(attempt, retries + 1, **pauses)


def _through(url: str) -> str:
    """Return the proxy that requests to a server go through, as a part of a sentence; "" if none."""
    proxy = describe_proxy(url)
    return f" through the proxy {proxy}" if proxy else ""
