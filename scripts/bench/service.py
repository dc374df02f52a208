"""What the answer service adds to a run: the same questions by HTTP clients and by the runner, on one engine.

Both begin with an empty prefix cache and without memory of earlier replies. Clients live in this process, so
what they cost is counted against the service.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx

from baselines.one_step import OneStepConfig, one_step
from core.protocols import Retriever
from core.runner import answer_all, answer_question
from core.runs.folder import RunFolder
from core.runs.rows import Row
from core.tools import Tools
from core.types import Question
from eval.datasets import load_questions
from generation.config import ModelConfig
from generation.vllm_engine import VllmGenerator
from scripts.bench.replay import open_world
from service.answering import AnswerService
from service.http.gate import Doors
from service.keys import Keys
from service.options import Limits, presets_of
from service.records import Records
from service.serve import AnswersOptions, keep_up

CLIENTS = {1: 8, 8: 32, 64: 64}
"""Questions that so many clients ask together."""
IDLE = 1000  # connections
_MODEL = "one_step"


async def main() -> dict[str, float]:
    """Return answers per second and latencies by clients, and the ratio to a run (``throughput_ratio``)."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        index = await open_world(root, dev=40, test=64)
        engine = VllmGenerator.open(ModelConfig(remember=False))
        config = OneStepConfig(k=3, max_answer_tokens=16)
        asked = load_questions(str(root / "world/test.jsonl"))
        try:
            await _run(root / "warm", load_questions(str(root / "world/dev.jsonl")), engine, index, config)
            await engine.reset_prefix_cache()
            run_seconds = await _run(root / "run", asked, engine, index, config)
            async with _served(root, engine, index, config) as url:
                figures = {"run_answers_per_s": len(asked) / run_seconds}
                for clients, count in CLIENTS.items():
                    await engine.reset_prefix_cache()
                    figures |= await _ask_all(url, asked[:count], clients)
                figures["throughput_ratio"] = figures["answers_per_s_64"] / figures["run_answers_per_s"]
                figures["first_event_ms"] = await _first_event(url, asked[:16]) * 1000
                figures |= await _hold_idle(url)
        finally:
            await engine.close()
            await index.close()
    return figures


async def _run(
    folder: Path,
    asked: Sequence[Question],
    engine: VllmGenerator,
    index: Retriever,
    config: OneStepConfig,
) -> float:
    """Answer as 'corag run' does, and return the seconds."""
    started = time.perf_counter()
    with RunFolder(folder, {}, {}) as run:

        async def answer_one(question: Question) -> Row:
            return await answer_question(
                question, partial(one_step, config=config), Tools(question, engine, index)
            )

        await answer_all(asked, answer_one, run.append, in_flight=max(CLIENTS))
    return time.perf_counter() - started


@asynccontextmanager
async def _served(
    root: Path, engine: VllmGenerator, index: Retriever, config: OneStepConfig
) -> AsyncIterator[str]:
    """Serve the method on a free port and yield the address."""
    options = AnswersOptions(
        method=[_MODEL], one_step=config, out=str(root / "served"), limits=Limits(queue=max(CLIENTS))
    )
    presets = presets_of(options)
    with (
        Records(options, presets, engine, index) as records,
        socket.create_server(("127.0.0.1", 0), backlog=2 * IDLE) as listener,
    ):
        service = AnswerService(options, presets, engine, index, records, lambda event, **told: None)
        up = asyncio.create_task(keep_up(service, Doors(Keys()), listener))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)


def _body(question: Question, **more: bool) -> dict[str, object]:
    return {"model": _MODEL, "messages": [{"role": "user", "content": question.text}], **more}


async def _ask_all(url: str, asked: Sequence[Question], clients: int) -> dict[str, float]:
    """Let so many clients ask, each one question after another."""
    seconds: list[float] = []
    waiting = iter(asked)
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:

        async def ask() -> None:
            for question in waiting:
                started = time.perf_counter()
                reply = await client.post("/v1/chat/completions", json=_body(question))
                reply.raise_for_status()
                seconds.append(time.perf_counter() - started)

        started = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(clients)))
        whole = time.perf_counter() - started
    ordered = sorted(seconds)
    return {
        f"answers_per_s_{clients}": len(asked) / whole,
        f"p50_s_{clients}": statistics.median(ordered),
        f"p95_s_{clients}": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
    }


async def _first_event(url: str, asked: Sequence[Question]) -> float:
    """Return the median seconds until a stream says its first word."""
    found = []
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for question in asked:
            started = time.perf_counter()
            async with client.stream(
                "POST", "/v1/chat/completions", json=_body(question, stream=True)
            ) as reply:
                async for _ in reply.aiter_lines():
                    found.append(time.perf_counter() - started)
                    break
    return statistics.median(found)


async def _hold_idle(url: str) -> dict[str, float]:
    """Hold many connections that say nothing, and return what that costs."""
    host, port = url.removeprefix("http://").split(":")
    before = _resident_mb()
    held = [await asyncio.open_connection(host, int(port)) for _ in range(IDLE)]
    started = time.perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        (await client.get("/readyz")).raise_for_status()
    figures = {
        "idle_connections": float(IDLE),
        "idle_mb": _resident_mb() - before,  # of both ends
        "readyz_ms_among_idle": (time.perf_counter() - started) * 1000,
    }
    for _, writer in held:
        writer.close()
    return figures


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
