"""The routes of the service.

GET  /                        the page
GET  /v1                      which addresses there are
GET  /v1/models               the presets
POST /v1/chat/completions     asks a question (OpenAI's protocol)
GET  /v1/answers/{id}         a recorded answer, for its link
GET  /v1/passages/{id}        a passage
*    /mcp                     the same for agents (MCP over HTTP)
GET  /healthz /readyz         whether the process runs, and whether questions are taken
GET  /metrics                 figures for Prometheus
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict, replace
from importlib import resources
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from corag.core.process import unix_time
from corag.core.tools import Step
from corag.service.admission import Ticket
from corag.service.answering import AnswerService, describe_preset
from corag.service.errors import CallError, error_from_exception, invalid, shutting_down
from corag.service.http.addresses import ADDRESSES, wrong_address
from corag.service.http.chat import ChatEvents, ChatRequest, ParseRules, completion, parse_chat
from corag.service.http.gate import AccessRules, Gate, reply
from corag.service.http.stream import CallerGoneError, EventStream, until_gone
from corag.service.metrics import CONTENT_TYPE

# The page's files by the names that it requests, with the package that each belongs to.
ASSETS = {
    "report.css": ("eval.report", "text/css"),
    "elements.js": ("eval.report", "text/javascript"),
    "service.css": ("corag.service", "text/css"),
    "service.js": ("corag.service", "text/javascript"),
}


def create_app(service: AnswerService, doors: AccessRules, agents: ASGIApp | None = None) -> ASGIApp:
    """Return the whole application. ``agents``: what answers at /mcp, if anything does."""
    handlers = _Handlers(service)
    routes: list[BaseRoute] = [
        Route("/", handlers.page),
        Route("/assets/{name}", handlers.asset),
        Route("/v1", handlers.addresses),
        Route("/v1/models", handlers.models),
        Route("/v1/models/{name:path}", handlers.model),
        Route("/v1/chat/completions", handlers.ask, methods=["POST"]),
        Route("/v1/answers/{key}", handlers.answer),
        Route("/v1/passages/{key:path}", handlers.passage),
        Route("/healthz", handlers.healthy),
        Route("/readyz", handlers.readiness),
        Route("/metrics", handlers.metrics),
    ]
    if agents is not None:
        routes.append(Route("/mcp", agents))
    app = Starlette(
        routes=routes,
        exception_handlers={
            CallError: _refuse,
            HTTPException: _refuse_route,
            CallerGoneError: _forget,
            Exception: _refuse,
        },
    )
    # A redirect would name http where a proxy in front has https: the sentence of a 404 serves better.
    app.router.redirect_slashes = False
    limits = service.options.limits
    return Gate(app, doors, limits.body_kb * 1000, limits.body_s, service.metrics, service.log)


class _Handlers:
    """What each route does."""

    def __init__(self, service: AnswerService) -> None:
        self._service = service
        self._created = int(unix_time())
        options = service.options
        self._rules = ParseRules(
            strict=options.strict,
            jobs=options.page_jobs,
            job_patterns=tuple(options.page_job_patterns),
        )

    # --- answers

    async def ask(self, request: Request) -> Response:
        """Answer a question, at once or as a stream."""
        chat = self._adapt(parse_chat(await read_json_body(request), self._rules))
        parent = request.headers.get("traceparent", "")
        chat = replace(chat, question=replace(chat.question, traceparent=parent))
        self._service.check(chat.question)
        ticket = self._service.enter(request.state.caller, chat.question.preset)
        if chat.stream:
            events = ChatEvents(ticket.key, int(unix_time()), chat)
            stream = self._events(chat, ticket, events)
            return EventStream(stream, ticket.leave, lambda: events.fail(shutting_down()))
        result = await until_gone(request.receive, self._service.answer(chat.question, ticket))
        return json_response(completion(result, chat, self._service.count_tokens))

    def _adapt(self, chat: ChatRequest) -> ChatRequest:
        """Leave out what cannot be used, unless the service is to refuse it, and count that."""
        options = self._service.options
        sources = options.sources if chat.sources is None else chat.sources
        chat = replace(chat, reasoning=options.reasoning, sources=sources)
        if options.strict:
            return chat
        adapted = self._service.adapt(chat.question)
        ignored = {**chat.ignored, **adapted.ignored}
        self._service.metrics.count_adaptation(
            ignored=bool(ignored), shortened=bool(adapted.shortened), job=bool(chat.question.job)
        )
        return replace(chat, question=adapted.request, ignored=ignored, shortened=adapted.shortened)

    async def _events(
        self, chat: ChatRequest, ticket: Ticket, events: ChatEvents
    ) -> AsyncGenerator[bytes, None]:
        """Yield an answer's steps as they end, then the answer."""
        steps: asyncio.Queue[Step | None] = asyncio.Queue()
        answering = asyncio.create_task(self._service.answer(chat.question, ticket, steps.put_nowait))
        answering.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            for piece in events.begin():
                yield piece
            while (step := await steps.get()) is not None:
                if chat.steps:
                    for piece in events.step(step):
                        yield piece
            try:
                result = answering.result()
            except CallError as error:
                pieces = events.fail(error)
            except Exception as error:  # noqa: BLE001 - the status is sent already, so the error goes into the stream
                self._service.log("defect", error=type(error).__name__)
                pieces = events.fail(error_from_exception(error))
            else:
                pieces = events.end(result, self._service.count_tokens)
            for piece in pieces:
                yield piece
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    # --- what there is

    async def addresses(self, _: Request) -> Response:
        """List the addresses: the page where clients look for them when they are given a wrong one."""
        return json_response(
            {"object": "list", "data": [f"{ways} {path}" for path, ways in ADDRESSES.items()]}
        )

    async def models(self, _: Request) -> Response:
        """List the presets."""
        return json_response(
            {"object": "list", "data": [self._model(name) for name in self._service.presets]}
        )

    async def model(self, request: Request) -> Response:
        """Describe one preset."""
        if not request.path_params["name"]:
            return await self.models(request)
        return json_response(self._model(self._service.preset(request.path_params["name"]).name))

    def _model(self, name: str) -> dict[str, Any]:
        about = describe_preset(self._service.presets[name])
        if documents := self._service.options.about:
            about["documents"] = documents
        return {"id": name, "object": "model", "created": self._created, "owned_by": "corag", "corag": about}

    async def answer(self, request: Request) -> Response:
        """Return a recorded answer."""
        record = self._service.records.find(request.path_params["key"])
        if record is None:
            raise CallError(404, "there is no answer under this link, or no more.", "answer_not_found")
        return json_response(record)

    async def passage(self, request: Request) -> Response:
        """Return a passage."""
        return json_response(asdict(await self._service.passage(request.path_params["key"])))

    # --- the page

    async def page(self, _: Request) -> Response:
        """Return the page."""
        return Response(asset("corag.service", "service.html"), media_type="text/html")

    async def asset(self, request: Request) -> Response:
        """Return one of the page's files."""
        name = request.path_params["name"]
        if name not in ASSETS:
            raise CallError(404, "there is no such file.", "not_found")
        package, kind = ASSETS[name]
        return Response(asset(package, name), media_type=kind, headers={"cache-control": "no-cache"})

    # --- operations

    async def healthy(self, _: Request) -> Response:
        """Say that the process runs."""
        return json_response({"status": "ok"})

    async def readiness(self, _: Request) -> Response:
        """Say whether questions are taken, and whether the index that is searched is the one on disk."""
        ready = self._service.ready
        state: dict[str, Any] = {"status": "ready" if ready else "unavailable"}
        if self._service.index_watch is not None:
            state["index"] = self._service.index_watch.state
        return json_response(state, 200 if ready else 503)

    async def metrics(self, _: Request) -> Response:
        """Return the figures."""
        return Response(self._service.metrics.render(self._service.ready), media_type=CONTENT_TYPE)


async def read_json_body(request: Request) -> Any:
    """Read a body of JSON. Raises :class:`CallError` if it is none, or says that it is something else."""
    # Browsers let pages of other origins send text without a preflight request, but not JSON.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise CallError(415, "send the body as application/json.", "unsupported_media_type")
    try:
        return orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        raise invalid("the body is not JSON.", code="invalid_json") from None
    except ClientDisconnect:
        raise CallerGoneError from None


def json_response(content: Any, status: int = 200) -> Response:
    """Return a JSON response that proxies may not cache."""
    return Response(orjson.dumps(content), status, {"cache-control": "no-store"}, "application/json")


def asset(package: str, name: str) -> bytes:
    """Read a file of a package's assets."""
    return resources.files(package).joinpath("assets", name).read_bytes()


async def _refuse(_: Request, error: Exception) -> Response:
    return reply(error_from_exception(error))


async def _forget(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # as nginx logs it; the caller has left


async def _refuse_route(request: Request, error: Exception) -> Response:
    status, headers = 500, dict[str, str]()
    if isinstance(error, HTTPException):
        status, headers = error.status_code, dict(error.headers or {})  # such as which ways there are
    sentences = {
        404: (wrong_address(request.url.path), "not_found"),
        405: (f"this address takes {headers.get('Allow', 'another method')} alone.", "method_not_allowed"),
    }
    response = reply(
        CallError(status, *sentences.get(status, ("the request makes no sense here.", "not_found")))
    )
    response.headers.update(headers)
    return response
