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

from benchmarks.replay import open_world
from corag.baselines.one_step import OneStepConfig, one_step
from corag.core.protocols import Retriever
from corag.core.runner import answer_all, answer_question
from corag.core.runs.folder import RunFolder
from corag.core.runs.rows import Row
from corag.core.tools import Tools
from corag.core.types import Question
from corag.generation.config import ModelConfig
from corag.generation.vllm_engine import VllmGenerator
from corag.service.answering import AnswerService
from corag.service.http.gate import AccessRules
from corag.service.keys import Keys
from corag.service.options import AnswersOptions, Limits, read_presets
from corag.service.serve import serve_until_stopped
from eval.datasets import load_questions

CLIENTS = {1: 8, 8: 32, 64: 64}
"""Questions that so many clients ask together."""
IDLE_CONNECTIONS = 1000  # connections
_MODEL = "one_step"


async def main() -> dict[str, float]:
    """Return answers per second and latencies by clients, and the ratio to a run (``throughput_ratio``)."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        index = await open_world(root, dev=40, test=64)
        engine = VllmGenerator.open(ModelConfig(remember=False))
        config = OneStepConfig(k=3, max_answer_tokens=16)
        questions = load_questions(str(root / "world/test.jsonl"))
        try:
            await _run(root / "warm", load_questions(str(root / "world/dev.jsonl")), engine, index, config)
            await engine.reset_prefix_cache()
            run_seconds = await _run(root / "run", questions, engine, index, config)
            async with _serve(root, engine, index, config) as url:
                figures = {"run_answers_per_s": len(questions) / run_seconds}
                for clients, count in CLIENTS.items():
                    await engine.reset_prefix_cache()
                    figures |= await _ask_all(url, questions[:count], clients)
                figures["throughput_ratio"] = figures["answers_per_s_64"] / figures["run_answers_per_s"]
                figures["first_event_ms"] = await _first_event(url, questions[:16]) * 1000
                figures |= await _hold_idle(url)
        finally:
            await engine.close()
            await index.close()
    return figures


async def _run(
    folder: Path,
    questions: Sequence[Question],
    engine: VllmGenerator,
    index: Retriever,
    config: OneStepConfig,
) -> float:
    """Answer as 'corag run' does, and return the seconds."""
    start = time.perf_counter()
    with RunFolder(folder, {}, {}) as run:

        async def answer_one(question: Question) -> Row:
            return await answer_question(
                question, partial(one_step, config=config), Tools(question, engine, index)
            )

        await answer_all(questions, answer_one, run.append, in_flight=max(CLIENTS))
    return time.perf_counter() - start


@asynccontextmanager
async def _serve(
    root: Path, engine: VllmGenerator, index: Retriever, config: OneStepConfig
) -> AsyncIterator[str]:
    """Serve the method on a free port and yield the address."""
    options = AnswersOptions(
        method=[_MODEL], one_step=config, out=str(root / "served"), limits=Limits(queue=max(CLIENTS))
    )
    presets = read_presets(options)
    with socket.create_server(("127.0.0.1", 0), backlog=2 * IDLE_CONNECTIONS) as listener:
        service = AnswerService(options, presets, engine, index, lambda event, **fields: None)
        up = asyncio.create_task(serve_until_stopped(service, AccessRules(Keys()), listener))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            await service.close()


def _body(question: Question, **more: bool) -> dict[str, object]:
    return {"model": _MODEL, "messages": [{"role": "user", "content": question.text}], **more}


async def _ask_all(url: str, questions: Sequence[Question], clients: int) -> dict[str, float]:
    """Let so many clients ask, each one question after another."""
    seconds: list[float] = []
    waiting = iter(questions)
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:

        async def ask() -> None:
            for question in waiting:
                start = time.perf_counter()
                reply = await client.post("/v1/chat/completions", json=_body(question))
                reply.raise_for_status()
                seconds.append(time.perf_counter() - start)

        whole_start = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(clients)))
        whole = time.perf_counter() - whole_start
    sorted_seconds = sorted(seconds)
    return {
        f"answers_per_s_{clients}": len(questions) / whole,
        f"p50_s_{clients}": statistics.median(sorted_seconds),
        f"p95_s_{clients}": sorted_seconds[min(len(sorted_seconds) - 1, int(0.95 * len(sorted_seconds)))],
    }


async def _first_event(url: str, questions: Sequence[Question]) -> float:
    """Return the median seconds until a stream says its first word."""
    seconds = []
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        for question in questions:
            start = time.perf_counter()
            async with client.stream(
                "POST", "/v1/chat/completions", json=_body(question, stream=True)
            ) as reply:
                async for _ in reply.aiter_lines():
                    seconds.append(time.perf_counter() - start)
                    break
    return statistics.median(seconds)


async def _hold_idle(url: str) -> dict[str, float]:
    """Hold many connections that say nothing, and return what that costs."""
    host, port = url.removeprefix("http://").split(":")
    before = _resident_mb()
    connections = [await asyncio.open_connection(host, int(port)) for _ in range(IDLE_CONNECTIONS)]
    start = time.perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        (await client.get("/readyz")).raise_for_status()
    figures = {
        "idle_connections": float(IDLE_CONNECTIONS),
        "idle_mb": _resident_mb() - before,  # of both ends
        "readyz_ms_among_idle": (time.perf_counter() - start) * 1000,
    }
    for _, writer in connections:
        writer.close()
    return figures


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
