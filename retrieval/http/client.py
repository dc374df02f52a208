"""Search through search servers: time-outs, retries, several addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx
import orjson

from core.errors import BackendError, CoragError, DataError, IndexMismatchError, SearchFailedError
from core.protocols import Retriever
from core.retry import TryAgainError, retrying
from core.text import reply_shown
from core.types import Hit, Passage
from core.waiting import Silence
from retrieval.config import RetrieverConfig
from retrieval.http.wire import hit_from_wire, passage_from_wire
from retrieval.index_manifest import IndexPart, require_all_parts
from retrieval.wrappers import PartsRetriever

_MAX_CONNECTIONS = 64  # more would not make a server faster: it searches what comes at once as one batch
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0  # a search takes milliseconds, a server's restart seconds
# The server, or what stands before it, is too busy or without its index, as it is for every other question.
_NOT_NOW = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
_GREETING_S = 10.0  # most seconds for the greeting, which searches nothing: four tries take under a minute
_SHOWN = 80  # characters of a reply that is not understood: enough to tell a web page from a search server

Reading = TypeVar("Reading")


async def connect(config: RetrieverConfig) -> Retriever:
    """Return a retriever over the servers of ``config.url``, all of which must be up.

    They search one and the same index; or the parts of one, each of which several of them may have.

    Raises :class:`BackendError` for a server that does not answer, :class:`IndexMismatchError` if they
    differ or a part is missing.
    """
    urls = [url.rstrip("/") for url in config.url]
    greeting = HttpRetriever(urls, timeout_s=config.timeout_s, retries=config.retries)
    try:
        found = {url: await greeting.ask([url], "/health", None, _served_by) for url in urls}
    except CoragError as error:
        # Here a search that fails is not one question's: there is no search server.
        raise BackendError(str(error)) from None
    finally:
        await greeting.close()
    parts = {url: part for url, (_, part) in found.items()}
    if not any(parts.values()):
        return _replicas({url: fingerprint for url, (fingerprint, _) in found.items()}, config)
    having = require_all_parts(parts)
    opened = [_replicas({url: found[url][0] for url in having[number]}, config) for number in having]
    return PartsRetriever(opened, next(part.whole for part in parts.values() if part is not None))


def _replicas(fingerprints: Mapping[str, str], config: RetrieverConfig) -> HttpRetriever:
    """Return a retriever over servers of one index, by address with the fingerprint that each tells."""
    if len(set(fingerprints.values())) > 1:
        listing = ", ".join(f"{url}: {fingerprint}" for url, fingerprint in fingerprints.items())
        raise IndexMismatchError(
            f"the search servers search different indexes ({listing}): start them on the same one."
        )
    retriever = HttpRetriever(list(fingerprints), timeout_s=config.timeout_s, retries=config.retries)
    retriever.fingerprint = next(iter(fingerprints.values()))
    return retriever


class HttpRetriever:
    """A retriever over one or more search servers, asked in turn.

    A failed attempt goes to the next one after a growing pause. ``fingerprint`` is the servers' own, set by
    :func:`connect`: a run over HTTP is the run over the index itself.
    """

    def __init__(self, urls: Sequence[str], *, timeout_s: float, retries: int) -> None:
        self.fingerprint = ""
        self.retried = 0  # requests that were sent again, each time
        self._urls = tuple(urls)
        self._timeout_s = timeout_s
        self._retries = retries
        self._asked = 0
        self._silence = Silence(", ".join(self._urls))
        self._client = httpx.AsyncClient(
            # Waiting for a free connection is our own load, not the server's fault: it has no limit.
            timeout=httpx.Timeout(timeout_s, pool=None),
            limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
        )

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first."""
        if not query.strip():
            return ()
        asked = {"queries": [query], "k": k}
        found = await self.ask(self._in_turn(), "/search", asked, lambda reply: _hits_of(reply, k))
        if isinstance(found, SearchFailedError):
            raise found
        return found

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        asked = {"ids": list(ids)}
        return await self.ask(self._in_turn(), "/passages", asked, _passages_of)

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    async def ask(
        self,
        urls: Sequence[str],
        route: str,
        body: dict[str, Any] | None,
        read: Callable[[dict[str, Any]], Reading],
    ) -> Reading:
        """Send one request (GET without a body), trying the addresses in turn, and return what it says.

        ``read``: takes that from the reply's object, and raises :class:`DataError` for one of the wrong
        shape. Such nonsense is tried again as a failure is. Raises :class:`SearchFailedError` if the request
        is refused or the last attempt timed out, failed inside the server or was answered with nonsense,
        :class:`BackendError` if the last attempt found nobody there, or nobody with time.
        """
        with self._silence.waiting() as heard:
            return await retrying(
                lambda number: self._attempt(number, urls[number % len(urls)] + route, body, read, heard),
                self._retries + 1,
                first_pause_s=_FIRST_PAUSE_S,
                longest_pause_s=_LONGEST_PAUSE_S,
            )

    async def _attempt(
        self,
        number: int,
        url: str,
        body: dict[str, Any] | None,
        read: Callable[[dict[str, Any]], Reading],
        heard: Callable[[], None],
    ) -> Reading:
        self.retried += number > 0
        limit = self._timeout_s if body is not None else min(self._timeout_s, _GREETING_S)
        try:
            reply = await self._send(url, body, limit)
        except httpx.TimeoutException:
            slow = f"{url} did not answer within {limit:g} s: raise timeout_s, or ask less at once."
            raise TryAgainError(SearchFailedError(slow)) from None
        except httpx.TransportError as problem:
            gone = f"{url} cannot be reached ({problem}): is the search server running there?"
            raise TryAgainError(BackendError(gone)) from None
        except httpx.DecodingError as problem:
            raise TryAgainError(_nonsense(url, f"it cannot be unpacked ({problem})")) from None
        heard()
        content = _object_of(reply)
        if reply.status_code == httpx.codes.OK:
            if content is None:
                said = f"it says {reply_shown(reply.text, _SHOWN)}" if reply.content else "it is empty"
                raise TryAgainError(_nonsense(url, said))
            self._require_same_index(url, content)
            try:
                return read(content)
            except DataError as problem:
                raise TryAgainError(_nonsense(url, str(problem))) from None
        told = (
            content["error"]
            if content and isinstance(content.get("error"), str)
            else reply_shown(reply.text, _SHOWN)
        )
        sentence = f"{url} replied with status {reply.status_code}: {told}"
        if reply.status_code in _NOT_NOW:
            raise TryAgainError(BackendError(sentence))
        if reply.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:  # only this request failed
            raise TryAgainError(SearchFailedError(sentence))
        if reply.status_code == httpx.codes.BAD_REQUEST:
            raise SearchFailedError(sentence)
        raise BackendError(f"{sentence}. Is this a search server?")

    def _require_same_index(self, url: str, content: dict[str, Any]) -> None:
        """Refuse a reply from another index than at first; servers of older versions do not tell which."""
        found = content.get("fingerprint", self.fingerprint)
        if self.fingerprint and found != self.fingerprint:
            raise BackendError(
                f"{url} searches another index now ({found}) than when the run began ({self.fingerprint}): "
                "start the server on the same index again, and run the same command to go on."
            )

    async def _send(self, url: str, body: dict[str, Any] | None, limit: float) -> httpx.Response:
        if body is None:
            # Waiting for a free connection is our own load, not the server's fault: it has no limit.
            return await self._client.get(url, timeout=httpx.Timeout(limit, pool=None))
        headers = {"content-type": "application/json"}
        return await self._client.post(url, content=orjson.dumps(body), headers=headers)

    def _in_turn(self) -> list[str]:
        self._asked += 1
        start = self._asked % len(self._urls)
        return [*self._urls[start:], *self._urls[:start]]


def _object_of(reply: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object that a reply holds, None if it holds none."""
    try:
        content = orjson.loads(reply.content)
    except orjson.JSONDecodeError:
        return None
    return content if isinstance(content, dict) else None


def _nonsense(url: str, said: str) -> SearchFailedError:
    return SearchFailedError(
        f"the reply of {url} is not a search server's: {said}. Check `url`, and what stands between."
    )


def _list_of(content: dict[str, Any], name: str) -> list[Any]:
    value = content.get(name)
    if not isinstance(value, list):
        raise DataError(f"'{name}' is {value!r:.40}, not a list")
    return value


def _served_by(reply: dict[str, Any]) -> tuple[str, IndexPart | None]:
    """Read what a server says of itself: its index's fingerprint, and which part of an index that is."""
    fingerprint, part = reply.get("fingerprint"), reply.get("part")
    if not isinstance(fingerprint, str):
        raise DataError("it names no index ('fingerprint')")
    try:
        return fingerprint, None if part is None else IndexPart(**part)
    except TypeError:
        raise DataError(f"'part' is {part!r:.60}") from None


def _hits_of(reply: dict[str, Any], k: int) -> list[Hit] | SearchFailedError:
    """Read the reply to one query: its hits, or why it cannot be searched for."""
    results = _list_of(reply, "results")
    if len(results) != 1 or not isinstance(results[0], dict):
        raise DataError(f"it has {len(results)} results for 1 query, or they are no objects")
    (result,) = results
    if isinstance(result.get("error"), str):
        return SearchFailedError(result["error"])
    hits = [hit_from_wire(record) for record in _list_of(result, "hits")]
    if len(hits) > k:
        raise DataError(f"it has {len(hits)} hits where {k} were asked for")
    return hits


def _passages_of(reply: dict[str, Any]) -> list[Passage]:
    return [passage_from_wire(record) for record in _list_of(reply, "passages")]
