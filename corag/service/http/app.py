"""The routes of the service, which ``/openapi.json`` describes."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, replace
from importlib import resources
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from corag.core.runs.environment import installed_version
from corag.core.system.process import unix_time
from corag.service.admission import Ticket
from corag.service.answering import AnswerService
from corag.service.conversation import AnswerRequest
from corag.service.errors import DEFECT, CallError, error_from_exception, invalid
from corag.service.http.body import ChatBody, read_body
from corag.service.http.chat import ChatEvents, completion, read_chat
from corag.service.http.gate import AccessRules, Gate
from corag.service.http.stream import KEEP_ALIVE_S, CallerGoneError, EventStream, until_gone
from corag.service.log import where
from corag.service.metrics import CONTENT_TYPE

# The page's files, with the package that each belongs to.
ASSETS = [("corag.service", "assets"), ("eval.report", "assets")]


def create_app(service: AnswerService, rules: AccessRules, agents: ASGIApp | None = None) -> ASGIApp:
    """Return the whole application. ``agents``: what answers at /mcp, if anything does."""
    handlers = _Handlers(service)
    routes: list[BaseRoute] = [
        Route("/", handlers.page),
        Mount("/assets", StaticFiles(packages=[*ASSETS])),
        Route("/openapi.json", handlers.schema),
        Route("/v1/models", handlers.models),
        Route("/v1/chat/completions", handlers.ask, methods=["POST"]),
        Route("/v1/passages/{key:path}", handlers.passage),
        Route("/healthz", handlers.healthy),
        Route("/readyz", handlers.readiness),
        Route("/metrics", handlers.metrics),
    ]
    if agents is not None:
        routes.append(Route("/mcp", agents, methods=["POST"]))
    # A redirect would name http where a proxy in front has https: the sentence of a 404 serves better.
    app = Router(routes, redirect_slashes=False)
    return Gate(app, rules, service.metrics, service.log)


class _Handlers:
    """What each route does."""

    def __init__(self, service: AnswerService) -> None:
        self._service = service
        self._created = int(unix_time())

    # --- answers

    async def ask(self, request: Request) -> Response:
        """Answer a question, at once or as a stream."""
        body = read_body(await read_json(request, self._service.options.limits.body_kb * 1000))
        question = replace(
            self._service.fit(read_chat(body, self._service.options)),
            request_id=request.state.request_id,
        )
        ticket = self._service.enter(request.state.caller, question.preset)
        count = self._service.count_tokens
        if body.stream:
            wants_usage = body.stream_options and body.stream_options.include_usage
            events = ChatEvents(ticket.key, question, count if wants_usage else None)
            return EventStream(self._events(question, ticket, events), ticket.leave)
        row = await until_gone(request.receive, self._service.answer(question, ticket))
        return json_response(completion(row, question, count))

    async def _events(
        self, question: AnswerRequest, ticket: Ticket, events: ChatEvents
    ) -> AsyncGenerator[bytes, None]:
        """Yield an answer's steps as they end, and the answer as it grows."""
        progress = self._service.progress(question, ticket, KEEP_ALIVE_S)
        try:
            for piece in events.begin():
                yield piece
            async with aclosing(progress):
                async for news in progress:
                    for piece in events.write(news):
                        yield piece
        except Exception as error:  # noqa: BLE001 - the status is sent already, so the error goes into the stream
            refusal = error_from_exception(error)
            if refusal.code == DEFECT:
                self._service.log("defect", error=where(error))
            for piece in events.fail(refusal):
                yield piece

    # --- what there is

    async def schema(self, request: Request) -> Response:
        """Describe the routes, and the body of a question."""
        body = ChatBody.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = {**body.pop("$defs", {}), "ChatBody": body}
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/ChatBody"}}}
        answered = {"responses": {"200": {"description": "it is so"}}}
        paths: dict[str, Any] = {}
        for route in request.app.routes:
            if isinstance(route, Route) and (summary := route.endpoint.__doc__):
                described = {"summary": summary, **answered}
                is_asking = route.endpoint == self.ask
                asking = {"post": {**described, "requestBody": {"content": content}}}
                paths[route.path_format] = asking if is_asking else {"get": described}
        info = {"title": "corag", "version": installed_version("corag")}
        about = {"openapi": "3.1.0", "info": info, "servers": [{"url": "."}]}
        return json_response({**about, "paths": paths, "components": {"schemas": schemas}})

    async def models(self, _: Request) -> Response:
        """List the presets."""
        documents = self._service.options.about
        shared = {"object": "model", "created": self._created, "owned_by": "corag"}
        listed = []
        for name, preset in self._service.presets.items():
            about = {"method": preset.method, "about": preset.config.find_method(preset.method).summary}
            listed.append({"id": name, **shared, "corag": about | {"documents": documents}})
        return json_response({"object": "list", "data": listed})

    async def passage(self, request: Request) -> Response:
        """Return a passage."""
        return json_response(asdict(await self._service.passage(request.path_params["key"])))

    # --- the page

    async def page(self, _: Request) -> Response:
        """Return the page."""
        page = resources.files("corag.service").joinpath("assets/service.html")
        return Response(page.read_bytes(), media_type="text/html")

    # --- operations

    async def healthy(self, _: Request) -> Response:
        """Say that the process runs."""
        return json_response({"status": "ok"})

    async def readiness(self, _: Request) -> Response:
        """Say whether questions are taken, and which index they are answered from."""
        ready = self._service.ready
        state = {"status": "ready" if ready else "unavailable", "index": self._service.index.fingerprint}
        return json_response(state, 200 if ready else 503)

    async def metrics(self, _: Request) -> Response:
        """Return the figures."""
        return Response(self._service.metrics.render(self._service.ready), media_type=CONTENT_TYPE)


async def read_json(request: Request, most: int) -> bytes:
    """Read a body of ``most`` bytes at most that says it is JSON, as it is or in gzip.

    Raises :class:`CallError` if it says that it is something else, or is longer once it is unpacked.
    """
    # Browsers let pages of other origins send text without a preflight request, but not JSON.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise CallError(415, "send the body as application/json.", "unsupported_media_type")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise CallError(415, "send the body as it is, or in gzip.", "unsupported_encoding")
    unpack, body = zlib.decompressobj(wbits=31).decompress, b""  # gzip
    try:
        async for piece in request.stream():
            # A byte too many shows what is too long, and no more of it is unpacked.
            body += unpack(piece, most - len(body) + 1) if encoding == "gzip" else piece
            if len(body) > most:
                sentence = f"the body has more than {most:,} bytes, which is all that is taken."
                raise CallError(413, sentence, "body_too_large")
    except ClientDisconnect:
        raise CallerGoneError from None
    except zlib.error:
        raise invalid("the body is not in gzip.", code="invalid_encoding") from None
    return body


def json_response(content: Any, status: int = 200) -> Response:
    """Return a JSON response that proxies may not cache."""
    return Response(orjson.dumps(content), status, {"cache-control": "no-store"}, "application/json")
