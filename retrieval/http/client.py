"""Search through search servers: which index they have, and what of a failure is one question's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from corag.core.errors import BackendError, IndexMismatchError, SearchFailedError
from corag.core.types import Hit, Passage
from corag.core.web.json_client import JsonClient, NoReplyError, RefusedError
from corag.core.web.replies import MalformedReplyError, list_at, value_at
from retrieval.config import RetrieverConfig
from retrieval.http.wire import hit_from_wire, passage_from_wire
from retrieval.index.manifest import IndexPart, require_all_parts
from retrieval.search.joined import PartsRetriever
from retrieval.search.stage import SearchStage, with_note

_MAX_CONNECTIONS = 64  # more would not make a server faster: it searches what comes at once as one batch
_PAUSE_S = 0.2  # a search takes milliseconds, a server's restart seconds

Reading = TypeVar("Reading")


async def connect(config: RetrieverConfig) -> SearchStage:
    """Return a search over the servers of ``config.url``, all of which must be up.

    They search one and the same index; or the parts of one, each of which several of them may have.

    Raises :class:`BackendError` for a server that does not answer, :class:`IndexMismatchError` if they
    differ or a part is missing.
    """
    urls = [url.rstrip("/") for url in config.url]
    client = _client(urls, config)
    try:
        greetings = {url: await client.open(f"{url}/health", None, _parse_greeting) for url in urls}
    except RefusedError as error:
        raise BackendError(f"{error}. Is this a search server?") from None
    finally:
        await client.close()
    parts = {url: greeting.part for url, greeting in greetings.items()}
    if not any(parts.values()):
        return _replicas(greetings, config)
    holders = require_all_parts(parts)
    retrievers = [_replicas({url: greetings[url] for url in urls}, config) for urls in holders.values()]
    return PartsRetriever(retrievers, next(part.whole for part in parts.values() if part is not None))


def _client(urls: Sequence[str], config: RetrieverConfig) -> JsonClient:
    return JsonClient(
        urls,
        what="the search server",
        option="retriever.url",
        timeout_s=config.timeout_s,
        retries=config.retries,
        connections=_MAX_CONNECTIONS,
        pause_s=_PAUSE_S,
    )


def _replicas(greetings: Mapping[str, _Greeting], config: RetrieverConfig) -> HttpRetriever:
    """Return a retriever over servers of one index, by address with what each reports."""
    fingerprints = {url: each.fingerprint for url, each in greetings.items()}
    if len(set(fingerprints.values())) > 1:
        listing = ", ".join(f"{url}: {fingerprint}" for url, fingerprint in fingerprints.items())
        raise IndexMismatchError(
            f"the search servers search different indexes ({listing}): start them on the same one."
        )
    # With equal fingerprints all of them have an encoder for later searches, or none.
    first = next(iter(greetings.values()))
    return HttpRetriever(_client(list(greetings), config), first)


class HttpRetriever(SearchStage):
    """A retriever over one or more search servers of one index.

    ``fingerprint``: the servers' own, so that a run over HTTP is the run over the index itself.
    """

    def __init__(self, client: JsonClient, greeting: _Greeting) -> None:
        """``greeting``: what all servers report."""
        super().__init__()
        self.fingerprint, self._client, self._greeting = greeting.fingerprint, client, greeting

    @property
    def has_hops(self) -> bool:
        """Whether queries that were asked on the way to an answer have an encoder of their own."""
        return self._greeting.hops

    @property
    def has_parts(self) -> bool:
        """Whether passages of the servers' index are parts of documents, whose ids gold ids may be."""
        return self._greeting.parts

    @property
    def retried(self) -> int:
        """How often a request was sent again."""
        return self._client.retried

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first. ``hop``: the query was asked on the way to an answer."""
        body = {"queries": [query], "k": k} | ({"hop": True} if hop else {})
        hits = await self._request("/search", body, lambda reply: _parse_hits(reply, k))
        if isinstance(hits, SearchFailedError):
            raise hits
        return hits

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._request("/passages", {"ids": list(ids)}, _parse_passages)

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.close()

    async def _request(self, route: str, body: dict[str, Any], parse: Callable[[Any], Reading]) -> Reading:
        """Return what ``parse`` makes of a reply.

        Raises :class:`SearchFailedError` if the request is refused or the last attempt timed out, failed
        inside the server or was answered with nonsense, :class:`BackendError` if nothing listens there, a
        server is too busy, or searches another index than at first.
        """

        def parse_same_index(reply: Any) -> Reading:
            self._require_same_index(reply)
            return parse(reply)

        try:
            return await self._client.request(route, body, parse_same_index)
        except NoReplyError as error:
            if error.fault in ("silent", "failed"):  # only this request failed
                raise SearchFailedError(str(error)) from None
            raise
        except RefusedError as error:
            if error.status == httpx.codes.BAD_REQUEST:
                raise SearchFailedError(str(error)) from None
            raise BackendError(f"{error}. Is this a search server?") from None

    def _require_same_index(self, reply: Any) -> None:
        """Refuse a reply from another index than at first, where the server reports which it searches."""
        fingerprint = reply.get("fingerprint", self.fingerprint) if isinstance(reply, dict) else ""
        if fingerprint and fingerprint != self.fingerprint:
            raise BackendError(
                f"the server {' or '.join(self._client.urls)} searches another index now ({fingerprint}) "
                f"than when the run began ({self.fingerprint}): start it on the same index again, and run "
                "the same command to go on."
            )


@dataclass(frozen=True, slots=True)
class _Greeting:
    """What a server reports of itself: its index's fingerprint, which part that is, what it has."""

    fingerprint: str
    part: IndexPart | None
    hops: bool
    parts: bool


def _parse_greeting(reply: Any) -> _Greeting:
    fingerprint = value_at(reply, "fingerprint", kind=str)
    part = reply.get("part")
    try:
        index_part = None if part is None else IndexPart(**part)
        return _Greeting(fingerprint, index_part, reply.get("hops") is True, reply.get("parts") is True)
    except TypeError:
        raise MalformedReplyError(f"a reply whose part is {part!r:.60}") from None


def _parse_hits(reply: Any, k: int) -> Sequence[Hit] | SearchFailedError:
    """Read the reply to one query: its hits, or why it cannot be searched for."""
    (result,) = list_at(reply, "results", kind=dict, length=1)
    if isinstance(result.get("error"), str):
        return SearchFailedError(result["error"])
    hits = [hit_from_wire(record) for record in list_at(result, "hits", kind=dict)]
    if len(hits) > k:
        raise MalformedReplyError(f"a reply with {len(hits)} hits where {k} were asked for")
    return with_note(hits, str(result.get("note", "")))


def _parse_passages(reply: Any) -> list[Passage]:
    return [passage_from_wire(record) for record in list_at(reply, "passages", kind=dict)]
