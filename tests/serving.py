"""Real servers of the default model, each in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from corag.generation.forced import PLUGIN
from corag.generation.models import model_folder


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# The page of models and engines shows this command, and a test compares the two.
SERVER = ["-m", "vllm.entrypoints.openai.api_server"]
OPTIONS = ["--scheduling-policy", "priority", "--enable-prompt-tokens-details", "--logits-processors", PLUGIN]


@contextmanager
def served_default_model() -> Iterator[str]:
    """Serve the default model in float32 with the plug-in, and yield the server's address."""
    with served_model(model_folder("default")) as url:
        yield url


@contextmanager
def served_model(folder: str, *more: str) -> Iterator[str]:
    """Serve a model in float32 with the plug-in, and yield the server's address. ``more``: its arguments."""
    port = free_port()
    small = ["--dtype", "float32", "--max-model-len", "2048", "--block-size", "32", "--max-num-seqs", "16"]
    small += ["--enforce-eager", "--kv-cache-memory-bytes", str(2**29), "--port", str(port)]
    small += ["--no-enable-chunked-prefill"]  # on a CPU a seeded sample would end the server: see the page
    with _served([*SERVER, "--model", folder, *OPTIONS, *small, *more], port) as url:
        yield url


@contextmanager
def served_llama_cpp(gguf: Path) -> Iterator[str]:
    """Serve a GGUF file with llama.cpp's server, and yield its address."""
    port = free_port()
    with _served(["-m", "tests.llama_cpp", str(gguf), str(port)], port) as url:
        yield url


@contextmanager
def _served(arguments: Sequence[str], port: int) -> Iterator[str]:
    """Run a server in a Python of its own, and yield its address once it is healthy."""
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    environment = os.environ | {
        "PYTHONPATH": path,
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    command = [sys.executable, *arguments]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, cwd=root, start_new_session=True
        )
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300
            while not _healthy(url):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"the server did not start:\n{log.read()[-3000:]}")
                time.sleep(1)
            yield url
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)  # the engine's processes, if any are left
            server.wait()


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False
