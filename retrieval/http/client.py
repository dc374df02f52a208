"""Search through search servers: time-outs, retries, several addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import orjson

from core.errors import BackendError, CoragError, IndexMismatchError, SearchFailedError
from core.retry import TryAgainError, retrying
from core.types import Hit, Passage
from retrieval.config import RetrieverConfig
from retrieval.http.wire import hit_from_wire, passage_from_wire

_MAX_CONNECTIONS = 64  # more would not make a server faster: it searches what comes at once as one batch
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0  # a search takes milliseconds, a server's restart seconds


async def connect(config: RetrieverConfig) -> HttpRetriever:
    """Return a retriever over the servers of ``config.url``; all must be up and search the same index.

    Raises :class:`BackendError` for a server that does not answer, :class:`IndexMismatchError` if they
    differ.
    """
    urls = [url.rstrip("/") for url in config.url]
    retriever = HttpRetriever(urls, timeout_s=config.timeout_s, retries=config.retries)
    try:
        found = {url: str((await retriever.ask([url], "/health"))["fingerprint"]) for url in urls}
    except (CoragError, KeyError) as error:
        await retriever.close()
        if isinstance(error, CoragError):
            raise
        raise BackendError("the server answers, but is not a search server: check `url`.") from None
    if len(set(found.values())) > 1:
        await retriever.close()
        listing = ", ".join(f"{url}: {fingerprint}" for url, fingerprint in found.items())
        raise IndexMismatchError(
            f"the search servers search different indexes ({listing}): start them on the same one."
        )
    retriever.fingerprint = found[urls[0]]
    return retriever


class HttpRetriever:
    """A retriever over one or more search servers, asked in turn.

    A failed attempt goes to the next one after a growing pause. ``fingerprint`` is the servers' own, set by
    :func:`connect`: a run over HTTP is the run over the index itself.
    """

    def __init__(self, urls: Sequence[str], *, timeout_s: float, retries: int) -> None:
        self.fingerprint = ""
        self._urls = tuple(urls)
        self._timeout_s = timeout_s
        self._retries = retries
        self._asked = 0
        self._client = httpx.AsyncClient(
            # Waiting for a free connection is our own load, not the server's fault: it has no limit.
            timeout=httpx.Timeout(timeout_s, pool=None),
            limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
        )

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first."""
        if not query.strip():
            return ()
        (result,) = (await self.ask(self._in_turn(), "/search", {"queries": [query], "k": k}))["results"]
        if "error" in result:
            raise SearchFailedError(result["error"])
        return [hit_from_wire(record) for record in result["hits"]]

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        reply = await self.ask(self._in_turn(), "/passages", {"ids": list(ids)})
        return [passage_from_wire(record) for record in reply["passages"]]

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    async def ask(
        self, urls: Sequence[str], route: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send one request (GET without a body), trying the addresses in turn, and return the reply's object.

        Raises :class:`SearchFailedError` if the request is refused or the last attempt timed out or failed
        inside the server, :class:`BackendError` if the last attempt found nobody there.
        """
        return await retrying(
            lambda number: self._attempt(urls[number % len(urls)] + route, body),
            self._retries + 1,
            first_pause_s=_FIRST_PAUSE_S,
            longest_pause_s=_LONGEST_PAUSE_S,
        )

    async def _attempt(self, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        try:
            reply = await self._send(url, body)
        except httpx.TimeoutException:
            slow = f"{url} did not answer within {self._timeout_s:g} s: raise timeout_s, or ask less at once."
            raise TryAgainError(SearchFailedError(slow)) from None
        except httpx.TransportError as problem:
            gone = f"{url} cannot be reached ({problem}): is the search server running there?"
            raise TryAgainError(BackendError(gone)) from None
        try:
            content = orjson.loads(reply.content)
        except orjson.JSONDecodeError:
            content = {"error": reply.text[:200]}
        if reply.status_code == httpx.codes.OK and isinstance(content, dict) and "error" not in content:
            self._require_same_index(url, content)
            return content
        # 503: the index behind the server is gone, as for every other question. Other 5xx: this request
        # failed.
        told = content.get("error") if isinstance(content, dict) else reply.text[:200]
        sentence = f"{url} replied with status {reply.status_code}: {told}"
        if reply.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise TryAgainError(BackendError(sentence))
        if reply.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
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

    async def _send(self, url: str, body: dict[str, Any] | None) -> httpx.Response:
        if body is None:
            return await self._client.get(url)
        headers = {"content-type": "application/json"}
        return await self._client.post(url, content=orjson.dumps(body), headers=headers)

    def _in_turn(self) -> list[str]:
        self._asked += 1
        start = self._asked % len(self._urls)
        return [*self._urls[start:], *self._urls[:start]]
