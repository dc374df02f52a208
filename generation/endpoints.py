"""Speaking to servers that may fail: whom to ask, what to send again, what counts as a reply.

A server fails in more ways than by its status: it hangs, breaks off in the middle, or a proxy before it
answers 200 with a page, half a reply, or one of another shape. Every fault is treated alike: the request is
sent again after a pause. So what a reply must hold is checked here, while there is still a next attempt.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import httpx
import orjson

from core.errors import BackendError, ConfigError, RequestRefusedError
from core.retry import TryAgainError, retrying
from core.text import reply_shown
from core.waiting import Silence
from generation.config import ModelConfig

_RETRIED = frozenset({408, 429, 500, 502, 503, 504})  # overloaded, restarting, or behind a proxy that is
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # a server that comes back has a model to load
# When servers are opened a wrong address is likelier than a fault, and somebody waits for the sentence.
_FIRST_PAUSE_OPENING_S, _LONGEST_PAUSE_OPENING_S = 0.2, 2.0
_LOOKING_UP_S = 5.0  # for what generates nothing, such as a list of models: six attempts take half a minute
# Who gave a server so long to load its model, in vain, does not ask it again; in a run once more: it may have
# died, and another be there.
_PATIENT_S = 60.0
# Far more questions than are in flight: one that is forgotten loses a cached prefix.
_MAX_AFFINITIES = 100_000
_SHOWN = 300  # characters of a reply in a message

Value = TypeVar("Value")
Result = TypeVar("Result")


@dataclass(slots=True)
class Endpoint:
    """One server, and how much it has to do.

    ``named``: its model has the name that was asked for.
    """

    url: str
    model: str
    window: int
    named: bool
    load: int = 0


Server = TypeVar("Server", bound=Endpoint)


class NonsenseError(Exception):
    """A reply with status 200 that is not what was asked for."""


class FaultError(Exception):
    """A request got no usable reply; another attempt may."""


class UnreachableError(FaultError):
    """Nobody is there."""


class SilentError(FaultError):
    """Nothing came within the time limit."""


class FaultyServerError(BackendError):
    """A server is there, but fails at a request whenever it is asked."""


class StatusError(Exception):
    """A server refused a request with a status that another attempt would not change."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(f"status {status}: {told}")
        self.status = status


def part(reply: object, *path: str | int, kind: type[Value]) -> Value:
    """Return what stands at a place in a reply, such as "choices", 0, "text".

    Raises :class:`NonsenseError` if nothing does, or something of another ``kind``. Whole numbers are floats.

    >>> part({"choices": [{"text": "yes"}]}, "choices", 0, "text", kind=str)
    'yes'
    """
    found: Any = reply
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            raise NonsenseError(f"a reply without {_place(path)}") from None
    if kind is float and type(found) is int:
        return cast("Value", float(found))
    if not isinstance(found, kind) or isinstance(found, bool) is not (kind is bool):
        shown = "null" if found is None else type(found).__name__
        raise NonsenseError(f"a reply whose {_place(path)} is {shown}, not {kind.__name__}")
    return found


def parts(reply: object, *path: str | int, kind: type[Value], length: int | None = None) -> tuple[Value, ...]:
    """Return a list at a place in a reply, whose elements are all of one kind.

    Raises :class:`NonsenseError` if it is none, or has another ``length``.
    """
    found = part(reply, *path, kind=list)
    if length is not None and len(found) != length:
        raise NonsenseError(f"a reply whose {_place(path)} has {len(found)} entries instead of {length}")
    return tuple(part(reply, *path, i, kind=kind) for i in range(len(found)))


def _place(path: Sequence[str | int]) -> str:
    return (
        "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".") or "body"
    )


class Endpoints(Generic[Server]):
    """Servers of one model, and the requests in flight to them.

    Requests of one affinity stay on one server, for its prefix cache; a new affinity goes to the server with
    the least in flight. A request that a server fails to answer is sent again, to the server with the least
    in flight, after a pause.
    """

    def __init__(self, client: httpx.AsyncClient, servers: Sequence[Server], retries: int) -> None:
        """``servers``: at least one. ``retries``: how often a failed request is sent again."""
        self.servers = list(servers)
        self.retried = 0  # requests that were sent again, each time
        self._client = client
        self._retries = retries
        self._homes: OrderedDict[str, Server] = OrderedDict()
        self._silence = Silence(", ".join(server.url for server in servers))

    async def ask(
        self,
        route: str,
        body: Callable[[Server], dict[str, Any]],
        read: Callable[[Any], Result],
        affinity: str,
    ) -> Result:
        """Send a request, again after a pause if it fails, to another server if there is one.

        ``body``: what to send to a server. ``read``: takes what is wanted out of the reply, parsed, and
        raises :class:`NonsenseError` if it is not there. Raises as :class:`core.protocols.Generator` says.
        """
        failed: Server | None = None
        waited_in_vain = False

        async def attempt(number: int) -> Result:
            nonlocal failed, waited_in_vain
            server = failed = self._choose(affinity, avoid=failed)
            self.retried += number > 0
            server.load += 1
            begun = time.monotonic()
            try:
                return await send(self._client, server.url + route, body(server), read, heard)
            except FaultError as fault:
                error = self._no_reply(server, fault, number + 1)
                patient = isinstance(fault, SilentError) and time.monotonic() - begun >= _PATIENT_S
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
        with self._silence.waiting() as heard:
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

    def _no_reply(self, server: Server, fault: FaultError, attempts: int) -> BackendError:
        return BackendError(
            f"no reply after {attempts} attempt{'s' * (attempts > 1)}, the last to {server.url} ({fault}). "
            "Look at the server's log; raise timeout_s or retries if it is only slow."
        )


def address(url: str) -> str:
    """Return a server's address as routes are added to it: people write it with and without /v1.

    >>> address("http://localhost:11434/v1/"), address("http://localhost:8000")
    ('http://localhost:11434', 'http://localhost:8000')
    """
    return url.rstrip("/").removesuffix("/v1")


def require_one_model(endpoints: Sequence[Endpoint]) -> None:
    """Refuse servers of models of different names, unless each is known by the name that was asked for."""
    first = endpoints[0]
    for other in endpoints[1:]:
        if other.model != first.model and not (first.named and other.named):
            raise ConfigError(
                f"the server {first.url} serves '{first.model}' and {other.url} serves '{other.model}', but "
                "a run asks one model: leave one of them out of --model.urls, or start both under one name "
                "with --served-model-name."
            )


def connect(config: ModelConfig) -> httpx.AsyncClient:
    """Return a client with the key that the environment holds, if it does. It knows the key, nobody else.

    Raises :class:`ConfigError` if a variable was named that is not set.
    """
    variable = config.api_key_variable
    if variable != ModelConfig.api_key_variable and variable not in os.environ:
        raise ConfigError(
            f"the environment variable {variable} is not set: put the server's API key there, or correct "
            "--model.api_key_variable, which is its name."
        )
    key = os.environ.get(variable, "")
    return httpx.AsyncClient(
        timeout=httpx.Timeout(config.timeout_s, connect=min(10.0, config.timeout_s)),
        # No limit: the run bounds what is in flight, and the server's queue knows priorities, ours does not.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        headers={"Authorization": f"Bearer {key}"} if key else {},
    )


async def send(
    client: httpx.AsyncClient,
    url: str,
    body: dict[str, Any] | None,
    read: Callable[[Any], Result],
    heard: Callable[[], None] = lambda: None,
) -> Result:
    """Send one request (GET without a body) once, and return what is read of the reply.

    ``heard``: called when the server says anything. Raises :class:`FaultError` if another attempt may go
    better, else :class:`StatusError`.
    """
    try:
        if body is None:
            limit = min(client.timeout.read or _LOOKING_UP_S, _LOOKING_UP_S)
            response = await client.get(url, timeout=limit)
        else:
            headers = {"Content-Type": "application/json"}
            response = await client.post(url, content=orjson.dumps(body), headers=headers)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise UnreachableError(_describe(error)) from None
    except httpx.TimeoutException as error:
        raise SilentError(_describe(error)) from None
    except (httpx.TransportError, httpx.DecodingError) as error:
        raise FaultError(_describe(error)) from None
    heard()
    if response.status_code in _RETRIED:
        raise FaultError(f"status {response.status_code}: {_told(client, response)}")
    if response.status_code != httpx.codes.OK:
        raise StatusError(response.status_code, _told(client, response))
    try:
        return read(orjson.loads(response.content))
    except orjson.JSONDecodeError:
        raise FaultError(f"no JSON, but {_told(client, response)}") from None
    except NonsenseError as nonsense:
        raise FaultError(str(nonsense)) from None


async def send_opening(
    client: httpx.AsyncClient,
    url: str,
    body: dict[str, Any] | None,
    read: Callable[[Any], Result],
    retries: int,
) -> Result:
    """Do what :func:`send` does, again after short pauses if it fails, while a server is being opened.

    Raises :class:`BackendError` if nobody is there, which waiting would not change, or nothing came in time;
    :class:`FaultyServerError` if the last attempt failed; :class:`StatusError`.
    """
    server = url.partition("/v1/")[0]
    silence = Silence(server)

    async def attempt(number: int) -> Result:
        begun = time.monotonic()
        try:
            with silence.waiting() as heard:
                return await send(client, url, body, read, heard)
        except UnreachableError as fault:
            raise BackendError(
                f"the server {server} cannot be reached ({fault}): start it, or correct --model.urls."
            ) from None
        except FaultError as fault:
            silent = isinstance(fault, SilentError)
            error = (BackendError if silent else FaultyServerError)(
                f"{url} does not answer as it should, after {number + 1} attempt{'s' * (number > 0)} "
                f"({fault}): look at the server's log, or correct --model.urls."
            )
            if silent and time.monotonic() - begun >= _PATIENT_S:
                raise error from None
            raise TryAgainError(error) from None

    pauses = {"first_pause_s": _FIRST_PAUSE_OPENING_S, "longest_pause_s": _LONGEST_PAUSE_OPENING_S}
    return await retrying(attempt, retries + 1, **pauses)


def _told(client: httpx.AsyncClient, response: httpx.Response) -> str:
    """Return the beginning of a body as :func:`reply_shown` does, without our key."""
    key = client.headers.get("Authorization", "").removeprefix("Bearer ")
    text = response.text.replace(key, "(the key)") if key else response.text
    return reply_shown(text, _SHOWN)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
