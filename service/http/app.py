"""The routes of the service.

GET  /                        the page
GET  /v1/models               the presets
POST /v1/chat/completions     asks a question (OpenAI's protocol)
GET  /v1/answers/{id}         an answer that was given, for its link
GET  /v1/passages/{id}        a passage
*    /mcp                     the same for agents (MCP over HTTP)
GET  /healthz /readyz         whether the process runs, and whether questions are taken
GET  /metrics                 figures for Prometheus
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict
from importlib import resources
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from core.clock import unix_time
from core.tools import Step
from service.admission import Ticket
from service.answering import AnswerService, described
from service.errors import CallError, invalid, of_failure
from service.http.chat import ChatRequest, Deltas, completion, parse_chat
from service.http.gate import Doors, Gate, reply
from service.http.stream import DONE, CallerGoneError, EventStream, event, told, until_gone
from service.metrics import CONTENT_TYPE

# What the page is made of, by the names that it asks for them, and the package each lies in.
ASSETS = {
    "report.css": ("eval.report", "text/css"),
    "elements.js": ("eval.report", "text/javascript"),
    "service.css": ("service", "text/css"),
    "service.js": ("service", "text/javascript"),
}


def create_app(service: AnswerService, doors: Doors, agents: ASGIApp | None = None) -> ASGIApp:
    """Return the whole application. ``agents``: what answers at /mcp, if anything does."""
    handlers = _Handlers(service)
    routes: list[BaseRoute] = [
        Route("/", handlers.page),
        Route("/assets/{name}", handlers.asset),
        Route("/v1/models", handlers.models),
        Route("/v1/models/{name:path}", handlers.model),
        Route("/v1/chat/completions", handlers.chat, methods=["POST"]),
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
    limits = service.options.limits
    return Gate(app, doors, limits.body_kb * 1000, limits.body_s, service.metrics, service.log)


class _Handlers:
    """What each route does."""

    def __init__(self, service: AnswerService) -> None:
        self._service = service
        self._created = int(unix_time())

    # --- asking

    async def chat(self, request: Request) -> Response:
        """Answer a question, at once or as a stream."""
        asked = parse_chat(await body_of(request))
        self._service.check(asked.asked)
        ticket = self._service.enter(request.state.caller, asked.asked.preset)
        if asked.stream:
            return EventStream(self._events(asked, ticket), ticket.leave, {})
        given = await until_gone(request.receive, self._service.answer(asked.asked, ticket))
        return json_response(completion(given, asked, self._service.count_tokens))

    async def _events(self, asked: ChatRequest, ticket: Ticket) -> AsyncGenerator[bytes, None]:
        """Yield an answer's steps as they end, then the answer."""
        chunks = Deltas(ticket.key, int(unix_time()), asked)
        steps: asyncio.Queue[Step | None] = asyncio.Queue()
        answering = asyncio.create_task(self._service.answer(asked.asked, ticket, steps.put_nowait))
        answering.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            yield event(chunks.begin())
            while (step := await steps.get()) is not None:
                if asked.steps:
                    yield event(chunks.step(step))
            try:
                given = answering.result()
            except CallError as error:
                yield told(error)
            except Exception as error:  # noqa: BLE001 - the stream has begun: what is wrong is told in it
                self._service.log("defect", error=type(error).__name__)
                yield told(of_failure(error))
            else:
                for piece in chunks.end(given, self._service.count_tokens):
                    yield event(piece)
            yield DONE
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    # --- looking

    async def models(self, _: Request) -> Response:
        """List the presets."""
        return json_response(
            {"object": "list", "data": [self._model(name) for name in self._service.presets]}
        )

    async def model(self, request: Request) -> Response:
        """Describe one preset."""
        return json_response(self._model(self._service.preset(request.path_params["name"]).name))

    def _model(self, name: str) -> dict[str, Any]:
        about = described(self._service.presets[name])
        return {"id": name, "object": "model", "created": self._created, "owned_by": "corag", "corag": about}

    async def answer(self, request: Request) -> Response:
        """Return an answer that was given."""
        found = self._service.records.find(request.path_params["key"])
        if found is None:
            raise CallError(404, "there is no answer under this link, or no more.", "answer_not_found")
        return json_response(found)

    async def passage(self, request: Request) -> Response:
        """Return a passage."""
        return json_response(asdict(await self._service.passage(request.path_params["key"])))

    # --- the page

    async def page(self, _: Request) -> Response:
        """Return the page."""
        return Response(asset("service", "service.html"), media_type="text/html")

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
        """Say whether questions are taken."""
        ready = self._service.ready
        return json_response({"status": "ready" if ready else "unavailable"}, 200 if ready else 503)

    async def metrics(self, _: Request) -> Response:
        """Return the figures."""
        return Response(self._service.metrics.exposed(self._service.ready), media_type=CONTENT_TYPE)


async def body_of(request: Request) -> Any:
    """Read a body of JSON. Raises :class:`CallError` if it is none, or says that it is something else."""
    # A page from elsewhere may send text without asking beforehand, but not JSON.
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
    """Return JSON that nobody on the way may keep."""
    return Response(orjson.dumps(content), status, {"cache-control": "no-store"}, "application/json")


def asset(package: str, name: str) -> bytes:
    """Read a file of a package's assets."""
    return resources.files(package).joinpath("assets", name).read_bytes()


async def _refuse(_: Request, error: Exception) -> Response:
    return reply(of_failure(error))


async def _forget(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # as nginx says it; nobody reads this


async def _refuse_route(_: Request, error: Exception) -> Response:
    status, headers = 500, dict[str, str]()
    if isinstance(error, HTTPException):
        status, headers = error.status_code, dict(error.headers or {})  # such as which ways there are
    said = {
        404: ("there is nothing here.", "not_found"),
        405: (f"this address takes {headers.get('Allow', 'another method')} alone.", "method_not_allowed"),
    }
    response = reply(CallError(status, *said.get(status, ("the request makes no sense here.", "not_found"))))
    response.headers.update(headers)
    return response
