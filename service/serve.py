"""Opening a service and keeping it up: from options to a listening process, and to its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import ClassVar

import uvicorn
from starlette.types import ASGIApp

from core.errors import BackendError, ConfigError
from eval.experiment.backends import open_backends, require_abilities
from service.answering import AnswerService
from service.http.app import create_app
from service.http.gate import Doors, hosts_of
from service.keys import Keys
from service.log import Log, log_line
from service.options import Preset, Served, presets_of
from service.records import Records

_LOOK_EVERY_S = 0.2
_KEPT_ALIVE_S = 75  # longer than proxies keep connections, which would else meet one that has just closed
LOST_ENGINE = "the engine has ended, so nothing can be answered any more: start the service again."


@dataclass(frozen=True)
class AnswersOptions(Served):
    """Options of 'corag serve answers'.

    Attributes:
        host: the address to listen on; 0.0.0.0 lets other machines in.
        port: the port to listen on; 0 takes a free one.
        api_key_file: a file with a line 'NAME KEY' per API key; "" lets everybody in who reaches the port.
        hosts: further names under which the service may be asked, such as that of a proxy.
        origins: web pages of other origins that may ask it, such as https://chat.example.org.
        agents: serve MCP at /mcp.
        check: open everything, say what would be served, and end.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_key_file: str = ""
    hosts: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    agents: bool = True
    check: bool = False

    OFTEN: ClassVar[tuple[str, ...]] = ("method", "presets", "host", "port", "api_key_file", "out")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be from 0 to 65535, but is {self.port}.")
        if wrong := [origin for origin in self.origins if "://" not in origin or origin.endswith("/")]:
            raise ConfigError(
                f"'{wrong[0]}' is no origin: write scheme and host alone, such as https://chat.example.org."
            )


@asynccontextmanager
async def open_service(options: Served, log: Log = log_line) -> AsyncIterator[AnswerService]:
    """Open model, index and run folders, and a service over them, for the length of a block.

    Raises :class:`ConfigError` and :class:`BackendError` as opening a run does.
    """
    presets = presets_of(options)
    opened = replace(options, method=list(dict.fromkeys(preset.method for preset in presets.values())))
    for preset in presets.values():
        preset.config.of(preset.method).check_files()
    async with open_backends(opened) as (generator, retriever):
        for name, preset in presets.items():
            require_abilities(f"preset '{name}'", preset.config.of(preset.method).needs(), generator)
        with Records(options, presets, generator, retriever) as records:
            service = AnswerService(options, presets, generator, retriever, records, log)
            try:
                yield service
            finally:
                await service.close()


async def serve(options: AnswersOptions, report: Callable[[str], None]) -> None:
    """Answer until told to stop by a signal; then what was begun is finished, as far as time allows.

    ``report``: is told the address, once questions are taken. Raises :class:`ConfigError` if the address is
    taken, :class:`BackendError` if the engine ends.
    """
    keys = Keys.read(options.api_key_file)
    if options.check:
        async with open_service(options) as service:
            for line in told_at_start(service.presets):
                report(line)
        return
    # Before the engine: a port that is taken is told in a second, not in a minute.
    with _listener(options.host, options.port) as listener:
        async with open_service(options) as service:
            for line in told_at_start(service.presets):
                report(line)
            doors = Doors(keys, hosts_of(options.host, options.hosts), frozenset(options.origins))
            port = listener.getsockname()[1]
            if not keys.digests and not doors.hosts:
                report("anybody who reaches this port may ask: --api_key_file lets only known callers in.")
            report(f"answering at http://{options.host}:{port} (Ctrl-C ends it)")
            await keep_up(service, doors, listener, by_signals=True)
            if service.failed:
                raise BackendError(LOST_ENGINE)


async def keep_up(
    service: AnswerService, doors: Doors, listener: socket.socket, *, by_signals: bool = False
) -> None:
    """Serve on a socket until the engine ends or this is cancelled; ``by_signals``: or one comes."""
    limits = service.options.limits
    if getattr(service.options, "agents", False):
        from service.agents import AgentDoor, agent_server

        door = AgentDoor(agent_server(service, doors.keys), limits.body_kb * 1000)
        open_door, agents = door.open, door.app
    else:
        open_door, agents = _nothing, None
    server = _server(create_app(service, doors, agents), limits.shutdown_s)
    closing = asyncio.Event()

    async def let_agents_in() -> None:
        async with open_door():
            await closing.wait()

    agents_inside = asyncio.create_task(let_agents_in())
    watching = asyncio.create_task(_watch(service, server, closing))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        with _told_by_signals(server) if by_signals else nullcontext():
            await asyncio.shield(serving)
    finally:
        server.should_exit = True  # cancelled, uvicorn would leave its socket open
        await asyncio.gather(serving, return_exceptions=True)
        closing.set()
        watching.cancel()
        await asyncio.gather(watching, agents_inside, return_exceptions=True)


async def _watch(service: AnswerService, server: uvicorn.Server, closing: asyncio.Event) -> None:
    """End the server with its engine; at the end let go of agents that only listen."""
    while not server.should_exit:
        await asyncio.sleep(_LOOK_EVERY_S)
        server.should_exit = server.should_exit or service.failed
    service.admission.closed = service.searches.closed = True
    if held := service.admission.admitted:
        log_line("ending", questions=held, seconds_at_most=service.options.limits.shutdown_s)
    await service.admission.until_empty()
    closing.set()


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


class _Server(uvicorn.Server):
    """Uvicorn, which would raise the signals that it heard once more when it has ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to :func:`_told_by_signals`: to end when one is told to is no failure."""
        yield


@contextmanager
def _told_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """End a server at a signal: once what was begun is finished, at a second Ctrl-C without."""
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
            log_level="error",
            access_log=False,  # it would write paths, and with them ids; the gate writes what is needed
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEPT_ALIVE_S,
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


def told_at_start(presets: Mapping[str, Preset]) -> list[str]:
    """Return a line for each preset."""
    width = max(map(len, presets))
    return [f"  {name:<{width}}  {preset.method}: {preset.about}" for name, preset in presets.items()]


def report_line(line: str) -> None:
    """Tell a person something, on standard error."""
    print(f"corag: {line}", file=sys.stderr, flush=True)  # noqa: T201
