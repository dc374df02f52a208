"""What the benches of methods stand on: a small world with its index, and an engine that can be replayed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from corag.core.protocols import GenerateRequest, Generation, GeneratorStage, Retriever, Score, ScoreRequest
from corag.generation.vllm_engine import VllmGenerator
from eval.datasets.world.write import write_world
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.search.pipeline import open_retriever


async def open_world(root: Path, *, dev: int, test: int) -> Retriever:
    """Write a world of 1,000 passages to ``root``/world, index it with BM25 and open the index."""
    write_world(root / "world", passages=1000, train=100, dev=dev, test=test, report=lambda line: None)
    build_index(IndexConfig([str(root / "world/corpus.jsonl")], str(root / "bm25")), lambda line: None)
    return await open_retriever(RetrieverConfig(index=[str(root / "bm25")]))


class Recorder(GeneratorStage):
    """A generator that notes every request on its way to a vLLM engine."""

    def __init__(self, engine: VllmGenerator) -> None:
        super().__init__(engine)
        self.engine = engine
        self.requests: list[GenerateRequest | ScoreRequest] = []

    async def generate(self, request: GenerateRequest) -> Generation:
        """Note and pass on."""
        self.requests.append(request)
        return await self.engine.generate(request)

    async def score(self, request: ScoreRequest) -> Score:
        """Note and pass on."""
        self.requests.append(request)
        return await self.engine.score(request)

    async def start_over(self) -> None:
        """Forget the requests, and let the engine forget its prefixes."""
        self.requests.clear()
        await self.engine.reset_prefix_cache()

    async def replay(self) -> float:
        """Put all requests to the engine at once, with a cold prefix cache; return the seconds they take."""
        requests = list(self.requests)
        await self.start_over()
        start = time.perf_counter()
        await asyncio.gather(*map(self._put, requests))
        return time.perf_counter() - start

    async def _put(self, request: GenerateRequest | ScoreRequest) -> Generation | Score:
        if isinstance(request, GenerateRequest):
            return await self.engine.generate(request)
        return await self.engine.score(request)
