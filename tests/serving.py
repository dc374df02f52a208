"""A real vLLM server in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from generation.forced import PLUGIN
from generation.models import model_folder


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served_default_model() -> Iterator[str]:
    """Serve the default model in float32 with the plug-in, and yield the server's address."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model_folder("default")]
    command += ["--port", str(port), "--dtype", "float32", "--max-model-len", "2048", "--block-size", "32"]
    command += ["--max-num-seqs", "16", "--enforce-eager", "--kv-cache-memory-bytes", str(2**29)]
    command += [
        "--logits-processors",
        PLUGIN,
        "--scheduling-policy",
        "priority",
        "--enable-prompt-tokens-details",
    ]
    root = Path(__file__).parents[1]
    environment = os.environ | {
        "PYTHONPATH": str(root),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300
            while not _healthy(url):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"the vLLM server did not start:\n{log.read()[-3000:]}")
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
