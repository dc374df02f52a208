"""Open a service and serve it until it is stopped: from options to a listening process."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace

import uvicorn
from starlette.types import ASGIApp

from corag.core.errors import BackendError, ConfigError
from corag.service.agents import agent_server, mcp_app
from corag.service.answering import AnswerService
from corag.service.following import folder_states, follow_index
from corag.service.http.app import create_app
from corag.service.http.gate import AccessRules, allowed_hosts
from corag.service.keys import Keys
from corag.service.log import Log, log_line
from corag.service.options import AnswersOptions, read_presets
from eval.experiment.backends import check_model, check_setup, open_backends

_LOOK_EVERY_S = 0.2
_KEEP_ALIVE_S = 75  # longer than proxies keep connections, which would else meet one that has just closed
_LOG_CONFIG = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"json": {"class": "corag.service.log.JsonHandler"}},
    "loggers": {"uvicorn": {"handlers": ["json"], "propagate": False}},
}
LOST_ENGINE = "the engine has ended, so nothing can be answered any more: start the service again."


@asynccontextmanager
async def open_service(options: AnswersOptions, log: Log = log_line) -> AsyncIterator[AnswerService]:
    """Open model, index and run folders, and a service over them, for the length of a block.

    Raises :class:`ConfigError` and :class:`BackendError` as opening a run does.
    """
    presets = read_presets(options)
    setup = replace(options, method=list(dict.fromkeys(preset.method for preset in presets.values())))
    for preset in presets.values():
        check_setup(replace(preset.config, method=[preset.method]))
    folders = folder_states(setup.retriever.index)
    async with open_backends(setup) as (generator, retriever):
        for name, preset in presets.items():
            check_model(f"preset '{name}'", preset.config.of(preset.method), setup.model, generator)
        service = AnswerService(options, presets, generator, retriever, log)
        following = asyncio.create_task(follow_index(service, setup.retriever, folders))
        try:
            yield service
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await service.close()


async def serve(options: AnswersOptions) -> None:
    """Serve until a signal comes, or the agent that started this leaves.

    Questions in flight are then finished, as far as time allows.

    The address stands on standard error once questions are accepted. Raises :class:`ConfigError` if the
    address is taken, :class:`BackendError` if the engine ends.
    """
    keys = Keys(options.api_key_file)
    if options.check or options.stdio:
        async with open_service(options) as service:
            _report_presets(service)
            if not options.check:
                await agent_server(service, Keys()).run_stdio_async()
        return
    # Before the engine opens: a port in use is reported in a second, not in a minute.
    with _listener(options.host, options.port) as listener:
        async with open_service(options) as service:
            _report_presets(service)
            rules = AccessRules(keys, allowed_hosts(options.host, options.hosts))
            port = listener.getsockname()[1]
            if not keys.path and not rules.hosts:
                _report("anybody who reaches this port may ask: 'api_key_file' lets only known callers in.")
            _report(f"answering at http://{options.host}:{port} (Ctrl-C ends it)")
            await serve_until_stopped(service, rules, listener, by_signals=True)
            _report("ending: an engine takes some seconds to stop")
            if service.failed:
                raise BackendError(LOST_ENGINE)


async def serve_until_stopped(
    service: AnswerService, rules: AccessRules, listener: socket.socket, *, by_signals: bool = False
) -> None:
    """Serve on a socket until the engine ends, this is cancelled, or (``by_signals``) a signal comes."""
    limits = service.options.limits
    agents, answering_agents = mcp_app(agent_server(service, rules.keys), limits.body_kb * 1000)
    server = _server(create_app(service, rules, agents), limits.shutdown_s)
    async with answering_agents:
        watching = asyncio.create_task(_watch(service, server))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            with listening_to_signals(server, rules.keys) if by_signals else nullcontext():
                await asyncio.shield(serving)
        finally:
            server.should_exit = True  # cancelled, uvicorn would leave its socket open
            await asyncio.gather(serving, return_exceptions=True)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def _watch(service: AnswerService, server: uvicorn.Server) -> None:
    """Stop the server when its engine ends, and take no more questions once it is to stop."""
    while not server.should_exit:
        await asyncio.sleep(_LOOK_EVERY_S)
        server.should_exit = server.should_exit or service.failed
    service.admission.closed = True
    # Said also where nothing is asked: an engine takes up to a quarter of a minute to close.
    log_line("ending", questions=service.admission.claims, seconds=service.options.limits.shutdown_s)


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to :func:`listening_to_signals`."""
        # Uvicorn raises a captured signal again when it has ended, which would make a clean stop a failure.
        yield


@contextmanager
def listening_to_signals(server: uvicorn.Server, keys: Keys) -> Iterator[None]:
    """Stop a server at a signal, after the questions in flight; at a second Ctrl-C at once.

    At SIGHUP read the keys again.
    """
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in signals}
    for number in signals[:2]:
        loop.add_signal_handler(number, server.handle_exit, number, None)
    loop.add_signal_handler(signal.SIGHUP, keys.reload)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


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


def _report_presets(service: AnswerService) -> None:
    width = max(map(len, service.presets))
    for name, preset in service.presets.items():
        about = preset.config.find_method(preset.method).summary
        _report(f"  {name:<{width}}  {preset.method}: {about}")


def run(options: AnswersOptions) -> None:
    """Serve until a signal comes."""
    asyncio.run(serve(options))


def _report(line: str) -> None:
    print(f"corag: {line}", file=sys.stderr, flush=True)  # noqa: T201
