"""Search through search servers: time-outs, retries, several addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import orjson

from corag.core.errors import BackendError, CoragError, DataError, IndexMismatchError, SearchFailedError
from corag.core.protocols import Retriever
from corag.core.proxies import describe_proxy, open_client
from corag.core.servers import StallNotifier, TryAgainError, retrying
from corag.core.text import reply_excerpt
from corag.core.types import Hit, Passage
from retrieval.config import RetrieverConfig
from retrieval.http.wire import hit_from_wire, passage_from_wire
from retrieval.index_manifest import IndexPart, require_all_parts
from retrieval.wrappers import PartsRetriever, with_note

_MAX_CONNECTIONS = 64  # more would not make a server faster: it searches what comes at once as one batch
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0  # a search takes milliseconds, a server's restart seconds
# The server, or what stands before it, is too busy or without its index, as it is for every other question.
_NOT_NOW = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
_GREETING_S = 10.0  # most seconds for the greeting, which searches nothing: four tries take under a minute
_EXCERPT_LENGTH = 80  # characters of an odd reply: enough to tell a web page from a search server

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
        greetings = {url: await greeting.request([url], "/health", None, _parse_greeting) for url in urls}
    except CoragError as error:
        # Here a search that fails is not one question's: there is no search server.
        raise BackendError(str(error)) from None
    finally:
        await greeting.close()
    parts = {url: greeting.part for url, greeting in greetings.items()}
    if not any(parts.values()):
        retriever = _replicas({url: each.fingerprint for url, each in greetings.items()}, config)
        if all(each.hops for each in greetings.values()):  # with equal fingerprints it is all or none
            retriever.hops = _HopClient(retriever)
        return retriever
    holders = require_all_parts(parts)
    retrievers = [
        _replicas({url: greetings[url].fingerprint for url in holders[number]}, config) for number in holders
    ]
    return PartsRetriever(retrievers, next(part.whole for part in parts.values() if part is not None))


def _replicas(fingerprints: Mapping[str, str], config: RetrieverConfig) -> HttpRetriever:
    """Return a retriever over servers of one index, by address with the fingerprint that each reports."""
    if len(set(fingerprints.values())) > 1:
        listing = ", ".join(f"{url}: {fingerprint}" for url, fingerprint in fingerprints.items())
        raise IndexMismatchError(
            f"the search servers search different indexes ({listing}): start them on the same one."
        )
    retriever = HttpRetriever(list(fingerprints), timeout_s=config.timeout_s, retries=config.retries)
    retriever.fingerprint = next(iter(fingerprints.values()))
    return retriever


class HttpRetriever:
    """A retriever over one or more search servers, which take turns.

    A failed attempt goes to the next one after a growing pause. ``fingerprint`` is the servers' own, set by
    :func:`connect`: a run over HTTP is the run over the index itself.
    """

    def __init__(self, urls: Sequence[str], *, timeout_s: float, retries: int) -> None:
        self.fingerprint = ""
        self.hops: Retriever | None = None  # set where the servers have an encoder for later searches
        self.retried = 0  # requests that were sent again, each time
        self._urls = tuple(urls)
        self._timeout_s = timeout_s
        self._retries = retries
        self._request_count = 0
        self._stalls = StallNotifier(", ".join(self._urls))
        self._client = open_client(
            self._urls,
            # Waiting for a free connection is our own load, not the server's fault: it has no limit.
            timeout=httpx.Timeout(timeout_s, pool=None),
            limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
        )

    async def search(self, query: str, k: int, *, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first. ``hop``: the query was asked on the way to an answer."""
        if not query.strip():
            return ()
        body = {"queries": [query], "k": k} | ({"hop": True} if hop else {})
        hits = await self.request(self._in_turn(), "/search", body, lambda reply: _parse_hits(reply, k))
        if isinstance(hits, SearchFailedError):
            raise hits
        return hits

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        body = {"ids": list(ids)}
        return await self.request(self._in_turn(), "/passages", body, _parse_passages)

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    async def request(
        self,
        urls: Sequence[str],
        route: str,
        body: dict[str, Any] | None,
        parse: Callable[[dict[str, Any]], Reading],
    ) -> Reading:
        """Send one request (GET without a body) to the addresses in turn; return what ``parse`` makes of it.

        ``parse``: takes that from the reply's object, and raises :class:`DataError` for one of the wrong
        shape. Such nonsense is tried again as a failure is. Raises :class:`SearchFailedError` if the request
        is refused or the last attempt timed out, failed inside the server or was answered with nonsense,
        :class:`BackendError` if the last attempt found nobody there, or nobody with time.
        """
        with self._stalls.waiting() as note_reply:
            return await retrying(
                lambda number: self._attempt(
                    number, urls[number % len(urls)] + route, body, parse, note_reply
                ),
                self._retries + 1,
                first_pause_s=_FIRST_PAUSE_S,
                longest_pause_s=_LONGEST_PAUSE_S,
            )

    async def _attempt(
        self,
        number: int,
        url: str,
        body: dict[str, Any] | None,
        parse: Callable[[dict[str, Any]], Reading],
        note_reply: Callable[[], None],
    ) -> Reading:
        self.retried += number > 0
        limit = self._timeout_s if body is not None else min(self._timeout_s, _GREETING_S)
        try:
            reply = await self._send(url, body, limit)
        except httpx.TimeoutException:
            message = f"{url} did not answer within {limit:g} s: raise timeout_s, or ask less at once."
            raise TryAgainError(SearchFailedError(message)) from None
        except httpx.TransportError as problem:
            proxy = describe_proxy(url)
            through = f" through the proxy {proxy}" if proxy else ""
            message = f"{url} cannot be reached{through} ({problem}): is the search server running there?"
            raise TryAgainError(BackendError(message)) from None
        except httpx.DecodingError as problem:
            raise TryAgainError(_nonsense(url, f"it cannot be unpacked ({problem})")) from None
        note_reply()
        content = _parse_object(reply)
        if reply.status_code == httpx.codes.OK:
            if content is None:
                flaw = (
                    f"it says {reply_excerpt(reply.text, _EXCERPT_LENGTH)}"
                    if reply.content
                    else "it is empty"
                )
                raise TryAgainError(_nonsense(url, flaw))
            self._require_same_index(url, content)
            try:
                return parse(content)
            except DataError as problem:
                raise TryAgainError(_nonsense(url, str(problem))) from None
        explanation = (
            content["error"]
            if content and isinstance(content.get("error"), str)
            else reply_excerpt(reply.text, _EXCERPT_LENGTH)
        )
        message = f"{url} replied with status {reply.status_code}: {explanation}"
        if reply.status_code in _NOT_NOW:
            raise TryAgainError(BackendError(message))
        if reply.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:  # only this request failed
            raise TryAgainError(SearchFailedError(message))
        if reply.status_code == httpx.codes.BAD_REQUEST:
            raise SearchFailedError(message)
        raise BackendError(f"{message}. Is this a search server?")

    def _require_same_index(self, url: str, content: dict[str, Any]) -> None:
        """Refuse a reply from another index than at first, where the server reports which it searches."""
        fingerprint = content.get("fingerprint", self.fingerprint)
        if self.fingerprint and fingerprint != self.fingerprint:
            raise BackendError(
                f"{url} searches another index now ({fingerprint}) than when the run began "
                f"({self.fingerprint}): start the server on the same index again, and run the same command "
                "to go on."
            )

    async def _send(self, url: str, body: dict[str, Any] | None, limit: float) -> httpx.Response:
        if body is None:
            # Waiting for a free connection is our own load, not the server's fault: it has no limit.
            return await self._client.get(url, timeout=httpx.Timeout(limit, pool=None))
        headers = {"content-type": "application/json"}
        return await self._client.post(url, content=orjson.dumps(body), headers=headers)

    def _in_turn(self) -> list[str]:
        self._request_count += 1
        start = self._request_count % len(self._urls)
        return [*self._urls[start:], *self._urls[:start]]


class _HopClient:
    """What the servers of a client find for queries that were asked on the way to an answer."""

    def __init__(self, client: HttpRetriever) -> None:
        self._client = client
        self.fingerprint = client.fingerprint

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first."""
        return await self._client.search(query, k, hop=True)

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._client.passages(ids)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _parse_object(reply: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object that a reply holds, None if it holds none."""
    try:
        content = orjson.loads(reply.content)
    except orjson.JSONDecodeError:
        return None
    return content if isinstance(content, dict) else None


def _nonsense(url: str, flaw: str) -> SearchFailedError:
    return SearchFailedError(
        f"the reply of {url} is not a search server's: {flaw}. Check `url`, and what stands between."
    )


def _require_list(content: dict[str, Any], name: str) -> list[Any]:
    value = content.get(name)
    if not isinstance(value, list):
        raise DataError(f"'{name}' is {value!r:.40}, not a list")
    return value


@dataclass(frozen=True, slots=True)
class _Greeting:
    """What a server reports of itself: its index's fingerprint, which part that is, whether it has hops."""

    fingerprint: str
    part: IndexPart | None
    hops: bool


def _parse_greeting(reply: dict[str, Any]) -> _Greeting:
    fingerprint, part = reply.get("fingerprint"), reply.get("part")
    if not isinstance(fingerprint, str):
        raise DataError("it names no index ('fingerprint')")
    try:
        return _Greeting(fingerprint, None if part is None else IndexPart(**part), reply.get("hops") is True)
    except TypeError:
        raise DataError(f"'part' is {part!r:.60}") from None


def _parse_hits(reply: dict[str, Any], k: int) -> Sequence[Hit] | SearchFailedError:
    """Read the reply to one query: its hits, or why it cannot be searched for."""
    results = _require_list(reply, "results")
    if len(results) != 1 or not isinstance(results[0], dict):
        raise DataError(f"it has {len(results)} results for 1 query, or they are no objects")
    (result,) = results
    if isinstance(result.get("error"), str):
        return SearchFailedError(result["error"])
    hits = [hit_from_wire(record) for record in _require_list(result, "hits")]
    if len(hits) > k:
        raise DataError(f"it has {len(hits)} hits where {k} were asked for")
    return with_note(hits, str(result.get("note", "")))


def _parse_passages(reply: dict[str, Any]) -> list[Passage]:
    return [passage_from_wire(record) for record in _require_list(reply, "passages")]
