"""How fast one process feeds several servers: prompts tokenised on the event loop, and beside it in threads.

The servers answer at once, each in a process of its own, so what is measured is this process alone.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx

from corag.core.prompting.prompt import Prompt
from corag.core.protocols import GenerateRequest, Sampling
from corag.generation.config import ModelConfig
from corag.generation.http import engine
from corag.generation.http.profiles import VLLM
from corag.generation.rendering import Renderer

SERVERS, REQUESTS, IN_FLIGHT, ROUNDS = 2, 192, 64, 5
_WORDS = "The river {} rises below the pass and reaches the town after a day on foot. "


async def main() -> dict[str, float]:
    """Return requests per second either way, and their ratio (``beside_ratio``), medians of the rounds."""
    with ExitStack() as stack:
        urls = tuple(_start(stack) for _ in range(SERVERS))
        await _wait_until_served(urls)
        config = ModelConfig(backend="server", urls=urls)
        generator = await engine.HttpGenerator.open(config, tokenizer=config.name, profile=VLLM)
        beside, speeds = vars(engine)["encode_beside"], {"beside": list[float](), "on_loop": list[float]()}
        try:
            await _ask(generator, -1)
            for number in range(ROUNDS):
                for name, encode in (("on_loop", _on_loop), ("beside", beside)):
                    _set(encode)
                    speeds[name].append(await _ask(generator, number))
        finally:
            _set(beside)
            await generator.close()
    rates = {f"{name}_requests_per_s": statistics.median(some) for name, some in speeds.items()}
    ratios = [one / other for one, other in zip(speeds["beside"], speeds["on_loop"], strict=True)]
    return {**rates, "beside_ratio": statistics.median(ratios)}


async def _on_loop(renderer: Renderer, prompt: Prompt, room: int) -> Any:
    return renderer.encode_within(prompt, room)


def _set(encode: Callable[..., Any]) -> None:
    vars(engine)["encode_beside"] = encode


async def _ask(generator: engine.HttpGenerator, number: int) -> float:
    """Send prompts of about 1,100 tokens, none twice, and return requests per second."""
    texts = [
        "".join(_WORDS.format(f"{number}-{each}-{line}") for line in range(45)) for each in range(REQUESTS)
    ]
    free = asyncio.Semaphore(IN_FLIGHT)

    async def ask(text: str) -> None:
        async with free:
            await generator.generate(GenerateRequest(Prompt.of_text(text), Sampling(4), affinity=text[-30:]))

    start = time.perf_counter()
    await asyncio.gather(*map(ask, texts))
    return REQUESTS / (time.perf_counter() - start)


def _start(stack: ExitStack) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.feed", str(port)])
    stack.callback(process.wait)
    stack.callback(process.kill)
    return f"http://127.0.0.1:{port}"


async def _wait_until_served(urls: tuple[str, ...]) -> None:
    async with httpx.AsyncClient() as client:
        for url in urls:
            for _ in range(600):
                try:
                    await client.get(f"{url}/v1/models")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)


def serve(port: int) -> None:
    """Answer every request at once, in vLLM's words."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def models(_: Request) -> Response:
        return JSONResponse({"data": [{"id": "only", "root": "only", "max_model_len": 4096}]})

    async def complete(request: Request) -> Response:
        count = (await request.json())["max_tokens"]
        choice = {"index": 0, "text": " yes", "token_ids": [1] * count, "finish_reason": "length"}
        choice["logprobs"] = {"token_logprobs": [-0.5] * count}
        return JSONResponse({"choices": [choice], "usage": {}})

    routes = [Route("/v1/models", models), Route("/v1/completions", complete, methods=["POST"])]
    uvicorn.run(Starlette(routes=routes), port=port, log_level="error")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
