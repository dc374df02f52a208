"""Open a service and serve it until it is stopped: from options to a listening process."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, cast

import uvicorn
from starlette.types import ASGIApp

from corag.core.errors import BackendError, ConfigError
from corag.core.option_names import LocalPath, Mark
from corag.service.agents import McpEndpoint, agent_server
from corag.service.answering import AnswerService
from corag.service.http.app import create_app
from corag.service.http.gate import AccessRules, allowed_hosts, check_host, check_origin
from corag.service.keys import Keys
from corag.service.log import Log, log_line
from corag.service.options import Preset, ServiceOptions, read_presets
from corag.service.records import Records
from corag.service.searched import IndexWatch, Places, find_places
from eval.experiment.backends import check_model, check_setup, open_backends
from eval.experiment.collector import sending_spans
from retrieval.config import RetrieverConfig

_LOOK_EVERY_S = 0.2
_KEEP_ALIVE_S = 75  # longer than proxies keep connections, which would else meet one that has just closed
_LOG_CONFIG = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"json": {"class": "corag.service.log.JsonHandler"}},
    "loggers": {"uvicorn": {"handlers": ["json"], "propagate": False}},
}
LOST_ENGINE = "the engine has ended, so nothing can be answered any more: start the service again."


@dataclass(frozen=True)
class AnswersOptions(ServiceOptions):
    """Options of 'corag serve answers'."""

    host: Annotated[str, Mark.PRIVATE] = "127.0.0.1"
    """the address to listen on; 0.0.0.0 lets other machines in."""

    port: int = 8110
    """the port to listen on; 0 takes a free one."""

    api_key_file: LocalPath = ""
    """a file with a line 'NAME KEY' per API key; "" allows access without a key."""

    hosts: Annotated[list[str], Mark.PRIVATE] = field(default_factory=list)
    """further host names of the service, such as that of a proxy."""

    origins: Annotated[list[str], Mark.PRIVATE] = field(default_factory=list)
    """allowed origins of other web pages (CORS), such as https://chat.example.org."""

    agents: bool = True
    """serve MCP at /mcp."""

    stdio: bool = False
    """serve MCP to the one agent that starts this command, over standard input and output, and no port."""

    check: bool = False
    """open everything, list what would be served, and exit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be from 0 to 65535, but is {self.port}.")
        for name in self.hosts:
            check_host(name)
        for origin in self.origins:
            check_origin(origin)


@asynccontextmanager
async def open_service(options: ServiceOptions, log: Log = log_line) -> AsyncIterator[AnswerService]:
    """Open model, index and run folders, and a service over them, for the length of a block.

    Raises :class:`ConfigError` and :class:`BackendError` as opening a run does.
    """
    presets = read_presets(options)
    setup = replace(options, method=list(dict.fromkeys(preset.method for preset in presets.values())))
    for preset in presets.values():
        check_setup(replace(preset.config, method=[preset.method]))
    folders = find_places(setup.retriever.index)
    async with open_backends(setup) as (generator, retriever):
        for name, preset in presets.items():
            check_model(f"preset '{name}'", preset.config.of(preset.method), setup.model, generator)
        spans = sending_spans(options.trace, setup.model, generator.fingerprint, setup.retriever)
        with Records(options, presets, generator, retriever) as records, spans as send:
            service = AnswerService(options, presets, generator, retriever, records, log, send)
            async with _watching_index(service, setup.retriever, folders):
                try:
                    yield service
                finally:
                    await service.close()


@asynccontextmanager
async def _watching_index(
    service: AnswerService, config: RetrieverConfig, places: Places
) -> AsyncIterator[None]:
    """Let a service go over to whatever index takes the place of its own, for the length of a block."""
    if service.index.retriever is None or not places or not all(map(any, places)):
        yield  # nothing is searched, or servers, or an index without a manifest of ours
        return
    watch = service.index_watch = IndexWatch(service, config, places)
    looking = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        if service.index.retriever is not None:
            await service.index.retriever.close()  # the first one is closed by whoever opened it, once more


async def serve(options: AnswersOptions, report: Callable[[str], None]) -> None:
    """Serve until a signal comes, or the agent that started this leaves.

    Questions in flight are then finished, as far as time allows.

    ``report`` is called with the address once questions are accepted. Raises :class:`ConfigError` if the
    address is taken, :class:`BackendError` if the engine ends.
    """
    keys = Keys.read(options.api_key_file)
    if options.check or options.stdio:
        async with open_service(options) as service:
            for line in preset_lines(service.presets):
                report(line)
            if not options.check:
                await agent_server(service, Keys()).run_stdio_async()
        return
    # Before the engine opens: a port in use is reported in a second, not in a minute.
    with _listener(options.host, options.port) as listener:
        async with open_service(options) as service:
            for line in preset_lines(service.presets):
                report(line)
            doors = AccessRules(keys, allowed_hosts(options.host, options.hosts), frozenset(options.origins))
            port = listener.getsockname()[1]
            if not keys.digests and not doors.hosts:
                report("anybody who reaches this port may ask: 'api_key_file' lets only known callers in.")
            report(f"answering at http://{options.host}:{port} (Ctrl-C ends it)")
            await serve_until_stopped(service, doors, listener, by_signals=True)
            if service.failed:
                raise BackendError(LOST_ENGINE)


async def serve_until_stopped(
    service: AnswerService, doors: AccessRules, listener: socket.socket, *, by_signals: bool = False
) -> None:
    """Serve on a socket until the engine ends, this is cancelled, or (``by_signals``) a signal comes."""
    limits = service.options.limits
    opening, agents = cast("AbstractAsyncContextManager[None]", nullcontext()), None
    if isinstance(service.options, AnswersOptions) and service.options.agents:
        endpoint = McpEndpoint(agent_server(service, doors.keys), limits.body_kb * 1000)
        opening, agents = endpoint.open(), endpoint.app
    server = _server(create_app(service, doors, agents), limits.shutdown_s)
    closing = asyncio.Event()

    async def let_agents_in() -> None:
        async with opening:
            await closing.wait()

    agents_inside = asyncio.create_task(let_agents_in())
    watching = asyncio.create_task(_watch(service, server, closing))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        with _stop_on_signals(server) if by_signals else nullcontext():
            await asyncio.shield(serving)
    finally:
        server.should_exit = True  # cancelled, uvicorn would leave its socket open
        await asyncio.gather(serving, return_exceptions=True)
        closing.set()
        watching.cancel()
        await asyncio.gather(watching, agents_inside, return_exceptions=True)


async def _watch(service: AnswerService, server: uvicorn.Server, closing: asyncio.Event) -> None:
    """Stop the server when its engine ends; close idle agent sessions once all questions are answered."""
    while not server.should_exit:
        await asyncio.sleep(_LOOK_EVERY_S)
        server.should_exit = server.should_exit or service.failed
    service.admission.closed = service.searches.closed = True
    if claims := service.admission.claims:
        log_line("ending", questions=claims, seconds_at_most=service.options.limits.shutdown_s)
    await service.admission.until_empty()
    closing.set()


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to :func:`_stop_on_signals`."""
        # Uvicorn raises a captured signal again when it has ended, which would make a clean stop a failure.
        yield


@contextmanager
def _stop_on_signals(server: uvicorn.Server) -> Iterator[None]:
    """Stop a server at a signal, after the questions in flight; at a second Ctrl-C at once."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM) if _in_main_thread() else ()
    before = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, server.handle_exit, number, None)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _server(app: ASGIApp, shutdown_s: float) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            app,
            log_config=_LOG_CONFIG,
            log_level="error",
            access_log=False,  # it would write paths, and with them ids; the gate writes what is needed
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(shutdown_s)),
        )
    )


def _listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}. Choose another host or port."
        ) from None


def preset_lines(presets: Mapping[str, Preset]) -> list[str]:
    """Return a line for each preset."""
    width = max(map(len, presets))
    return [f"  {name:<{width}}  {preset.method}: {preset.about}" for name, preset in presets.items()]


def report_line(line: str) -> None:
    """Print a line for people on standard error."""
    print(f"corag: {line}", file=sys.stderr, flush=True)  # noqa: T201
