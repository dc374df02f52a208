"""Replies of servers that speak JSON: one request, what counts as a reply, and what stands in it.

Whoever calls decides what is tried again: :class:`FaultError` is what another attempt may mend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import httpx
import orjson

from corag.core.text import reply_excerpt

_RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})  # overloaded, restarting, or behind such a proxy
_LOOK_UP_S = 5.0  # for what generates nothing, such as a list of models: six attempts take half a minute
_EXCERPT = 300  # characters of a reply in a message

Value = TypeVar("Value")
Result = TypeVar("Result")


class MalformedReplyError(Exception):
    """A reply with status 200 that is not what was asked for."""


class FaultError(Exception):
    """A request got no usable reply; another attempt may."""


class UnreachableError(FaultError):
    """Nothing listens at the address."""


class SilentError(FaultError):
    """Nothing came within the time limit."""


class StatusError(Exception):
    """A server refused a request with a status that another attempt would not change."""

    def __init__(self, status: int, message: str, reply: Any = None) -> None:
        """``reply``: the server's, parsed if it is JSON."""
        super().__init__(f"status {status}: {message}")
        self.status = status
        self.reply = reply


def value_at(reply: object, *path: str | int, kind: type[Value]) -> Value:
    """Return what stands at a place in a reply, such as "choices", 0, "text".

    Raises :class:`MalformedReplyError` if nothing does, or something of another ``kind``. Whole numbers are
    floats too.

    >>> value_at({"choices": [{"text": "yes"}]}, "choices", 0, "text", kind=str)
    'yes'
    """
    value: Any = reply
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise MalformedReplyError(f"a reply without {_location(path)}") from None
    if kind is float and type(value) is int:
        return cast("Value", float(value))
    # A bool is an int to Python, but not to JSON.
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        name = "null" if value is None else type(value).__name__
        raise MalformedReplyError(f"a reply whose {_location(path)} is {name}, not {kind.__name__}")
    return value


def list_at(
    reply: object, *path: str | int, kind: type[Value], length: int | None = None
) -> tuple[Value, ...]:
    """Return a list at a place in a reply, whose elements are all of one kind.

    Raises :class:`MalformedReplyError` if it is none, or has another ``length``.
    """
    values = value_at(reply, *path, kind=list)
    if length is not None and len(values) != length:
        raise MalformedReplyError(
            f"a reply whose {_location(path)} has {len(values)} entries instead of {length}"
        )
    return tuple(value_at(reply, *path, i, kind=kind) for i in range(len(values)))


def _location(path: Sequence[str | int]) -> str:
    return (
        "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".") or "body"
    )


async def send(
    client: httpx.AsyncClient,
    url: str,
    body: dict[str, Any] | None,
    parse: Callable[[Any], Result],
    on_reply: Callable[[], None] = lambda: None,
) -> Result:
    """Send one request (GET without a body) once, and return what ``parse`` takes out of the reply.

    ``on_reply``: called when the server replies at all. Raises :class:`FaultError` if another attempt may go
    better, else :class:`StatusError`.
    """
    try:
        if body is None:
            limit = min(client.timeout.read or _LOOK_UP_S, _LOOK_UP_S)
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
    on_reply()
    if response.status_code in _RETRY_STATUSES:
        raise FaultError(f"status {response.status_code}: {_excerpt(client, response)}")
    if response.status_code != httpx.codes.OK:
        raise StatusError(response.status_code, _excerpt(client, response), _parse_body(response))
    try:
        return parse(orjson.loads(response.content))
    except orjson.JSONDecodeError:
        raise FaultError(f"no JSON, but {_excerpt(client, response)}") from None
    except MalformedReplyError as malformed:
        raise FaultError(str(malformed)) from None


def _parse_body(response: httpx.Response) -> Any:
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return response.text


def _excerpt(client: httpx.AsyncClient, response: httpx.Response) -> str:
    """Return how a body begins as :func:`reply_excerpt` does, without our key: servers may repeat it."""
    key = client.headers.get("Authorization", "").removeprefix("Bearer ")
    text = response.text.replace(key, "(the key)") if key else response.text
    return reply_excerpt(text, _EXCERPT)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
