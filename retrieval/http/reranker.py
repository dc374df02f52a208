"""A re-ranker behind a URL: ``/rerank`` as vLLM, Jina, Cohere and llama.cpp have it, or as TEI does.

The first take {"model", "query", "documents", "top_n"} and return
{"results": [{"index", "relevance_score"}]}; TEI takes {"query", "texts"} and returns
[{"index", "score"}]. The first request tells which it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from corag.core.errors import BackendError, SearchFailedError
from corag.core.json_client import RefusedError
from corag.core.replies import MalformedReplyError, value_at
from corag.core.seeds import stable_hash
from corag.core.servers import base_address
from retrieval.dense.placement import Placement
from retrieval.http.model_server import ModelServer
from retrieval.search.rerankers import Pairs, ScoresOrError

KEY = "CORAG_RERANKER_API_KEY"
_TEI_TEXTS = 32  # of a request to TEI
_REFUSAL_CODES = (400, 413, 422)


class ServedReranker:
    """A re-ranker on a server. ``fingerprint`` is of the model's name: nothing else of it can be seen."""

    def __init__(self, address: str, placement: Placement) -> None:
        """Ask the server for its model and one score.

        Args:
            address: http://host:port, or all of the address to .../rerank; with #MODEL behind it where
                several models are served.
            placement: how long and how often the server is asked.

        Raises:
            ConfigError: if the address holds a secret, the model must be named, or it is another.
            BackendError: if there is no such server.
        """
        url, mark, model = address.partition("#")
        base = url.rstrip("/").removesuffix("/rerank")
        self._server = ModelServer(f"{base}{mark}{model}", "the re-ranker", KEY, placement)
        self._server.run(self._server.find_model(f"{base_address(self._server.url)}/models"))
        self._options: dict[str, Any] = {"model": self._server.model} if self._server.model else {}
        if self._server.is_vllm:  # it refuses passages that are too long otherwise
            self._options["truncate_prompt_tokens"] = -1
        self._is_tei = False
        self._server.settle_model(self._server.run(self._open()))
        self.fingerprint = stable_hash(f"served|{self._server.model}")

    def score(self, items: Sequence[Pairs]) -> Sequence[ScoresOrError]:
        """Return for each query the scores of its passages, or why the server refuses it."""
        return self._server.run(self._score_all(items))

    def note(self, query: str) -> str:
        """Return "": how much it reads is the server's to know."""
        return ""

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._server.close()

    async def _open(self) -> str:
        """Find out which of the two protocols it is; return the model that the reply names, "" for none."""
        try:
            return (await self._send("river", ["The Issel is a river."]))[0]
        except RefusedError as refusal:
            first = refusal
        if first.status in _REFUSAL_CODES:
            self._is_tei = True
            try:
                return (await self._send("river", ["The Issel is a river."]))[0]
            except RefusedError as refusal:
                first = refusal if "texts" in str(first) else first
        raise self._server.refusal(first)

    async def _score_all(self, items: Sequence[Pairs]) -> Sequence[ScoresOrError]:
        return await asyncio.gather(*(self._score(query, texts) for query, texts in items))

    async def _score(self, query: str, texts: Sequence[str]) -> ScoresOrError:
        # TEI scores passages one by one and limits their number; of the others some compare them.
        size = _TEI_TEXTS if self._is_tei else max(1, len(texts))
        parts = [texts[start : start + size] for start in range(0, len(texts), size)]
        try:
            replies = await asyncio.gather(*(self._send(query, part) for part in parts))
        except RefusedError as refusal:
            message = f"{refusal}. It was for the query '{query[:80]}'."
            if refusal.status in _REFUSAL_CODES:
                return SearchFailedError(message)
            raise BackendError(message) from None
        return [score for _, scores in replies for score in scores]

    async def _send(self, query: str, texts: Sequence[str]) -> tuple[str, list[float]]:
        if self._is_tei:
            body = {"query": query, "texts": list(texts), "truncate": True}
        else:
            body = {"query": query, "documents": list(texts), "top_n": len(texts), **self._options}
        return await self._server.client.request(
            "/rerank", body, lambda reply: _read_scores(reply, len(texts))
        )


def _read_scores(reply: Any, count: int) -> tuple[str, list[float]]:
    """Return the model that a reply names, "" for none, and the scores of ``count`` passages, in their order.

    Raises :class:`MalformedReplyError` if it lacks one, or is no re-ranker's.
    """
    is_tei = isinstance(reply, list)
    results = reply if is_tei else value_at(reply, "results", kind=list)
    scores: dict[int, float] = {}
    for each in results:
        position = value_at(each, "index", kind=int)
        scores[position] = value_at(each, "score" if is_tei else "relevance_score", kind=float)
    if len(results) != count or scores.keys() != set(range(count)):
        raise MalformedReplyError(f"a reply with scores of {sorted(scores)} for {count} passages")
    model = "" if is_tei else reply.get("model")
    return model if isinstance(model, str) else "", [scores[position] for position in range(count)]
