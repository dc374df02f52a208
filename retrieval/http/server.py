"""A retriever over HTTP: one index in one process, searched by many.

POST /search    takes {"queries": [...], "k": 5}
                returns {"results": [{"hits": [{"id", "title", "text", "score"}]} or {"error": ...}]}, with
                a "note" beside the hits where there is something to say, such as a shortened query;
                "hop": true asks for a query that a method wrote on the way, with ``--retriever.hop_encoder``
POST /passages  takes {"ids": [...]}
                returns {"passages": [{"id", "title", "text"}]}, unknown ids left out
POST /retrieve  takes {"queries": [...], "topk": 3, "return_scores": true}, as Search-R1's server,
                see :mod:`retrieval.http.retrieve`
GET /health     returns {"status": "ok", "fingerprint": "..."}, of a part of an index also
                {"part": {"number": 2, "count": 4, "whole": "..."}}, with the whole index's fingerprint,
                and {"hops": true} where queries on the way have an encoder of their own, {"parts": true}
                where passages are parts of documents, whose ids gold ids may be

A request that makes no sense gets status 400 and {"error": "..."}; a lost index gets 503.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from corag.core.errors import BackendError, ConfigError, CoragError, DataError
from corag.core.protocols import search_note
from retrieval.http.retrieve import MAX_K, retrieve
from retrieval.http.wire import hit_to_record, passage_to_record
from retrieval.search.stage import SearchStage


async def serve(retriever: SearchStage, host: str, port: int, report: Callable[[str], None]) -> None:
    """Answer requests until cancelled or stopped by a signal; the caller closes the retriever.

    Port 0 takes a free one, for ``report`` to print. Raises :class:`ConfigError` if the address is taken.
    """
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}. Choose another host or port."
        ) from None
    server = uvicorn.Server(uvicorn.Config(create_app(retriever), log_level="warning", lifespan="off"))
    report(f"searching index {retriever.fingerprint} at http://{host}:{listener.getsockname()[1]}")
    with listener:
        await server.serve(sockets=[listener])


def create_app(retriever: SearchStage) -> Starlette:
    """Return the web application over a retriever; requests that come at the same time share its batches."""
    # In every reply: a server may be restarted on another index while a run goes on.
    index: dict[str, Any] = {"fingerprint": retriever.fingerprint}
    part = retriever.part
    about: dict[str, Any] = {"part": asdict(part)} if part is not None else {}
    if retriever.has_hops:
        about["hops"] = True
    if retriever.has_parts:
        about["parts"] = True

    async def search(request: Request) -> Response:
        body = await _body(request)
        queries, k = _strings(body, "queries"), body.get("k")
        if not isinstance(k, int) or not 1 <= k <= MAX_K:
            raise DataError(f"'k' must be a whole number from 1 to {MAX_K:,}, but is {k!r}.")

        async def one(query: str) -> dict[str, Any]:
            try:
                hits = await retriever.search(query, k, body.get("hop") is True)
                note = search_note(hits)
                return {"hits": list(map(hit_to_record, hits))} | ({"note": note} if note else {})
            except BackendError:  # no fault of this query: the whole request fails, and clients try again
                raise
            except CoragError as error:
                return {"error": str(error)}

        return _json({"results": await asyncio.gather(*map(one, queries)), **index})

    async def passages(request: Request) -> Response:
        hits = await retriever.passages(_strings(await _body(request), "ids"))
        return _json({"passages": [passage_to_record(passage) for passage in hits], **index})

    async def retrieve_(request: Request) -> Response:
        if part is not None:
            raise DataError(
                f"this server has part {part} of an index, and who asks /retrieve would search that alone: "
                "serve all parts by one server, corag serve PART1 PART2 ..."
            )
        return _json(await retrieve(retriever, await _body(request)))

    async def health(_: Request) -> Response:
        return _json({"status": "ok", **index, **about})

    async def refuse(_: Request, error: Exception) -> Response:
        return _json({"error": str(error)}, 503 if isinstance(error, BackendError) else 400)

    routes = [
        Route("/search", search, methods=["POST"]),
        Route("/passages", passages, methods=["POST"]),
        Route("/retrieve", retrieve_, methods=["POST"]),
        Route("/health", health),
    ]
    return Starlette(routes=routes, exception_handlers={CoragError: refuse})


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise DataError(f"the body is not JSON: {error}.") from None
    if not isinstance(body, dict):
        raise DataError(f"the body must be a JSON object, but is a {type(body).__name__}.")
    return body


def _strings(body: dict[str, Any], name: str) -> list[str]:
    values = body.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"'{name}' must be a list of strings.")
    return values


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
