"""An engine of a fixed latency, and a method that asks it: what workers of a benchmark open and do.

Apart from the benchmark, and light: every worker imports it.
"""

from __future__ import annotations

import asyncio

from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.protocols import Completion, GenerateRequest, Generation, Generator
from corag.core.tools import Tools
from corag.core.types import Answer, Question, TokenUsage
from corag.generation.cached import CachedGenerator

HOPS = 4


class PausingEngine(Generator):
    """Answers every request after the same time, ``slots`` of them at once, as a full engine does."""

    fingerprint = "pausing"

    def __init__(self, latency_s: float, slots: int) -> None:
        self._latency_s = latency_s
        self._slots = asyncio.Semaphore(slots)

    def count_tokens(self, text: str) -> int:
        """Count words."""
        return len(text.split())

    async def generate(self, request: GenerateRequest) -> Generation:
        """Wait, then reply."""
        async with self._slots:
            await asyncio.sleep(self._latency_s)
        return Generation((Completion("a sentence about it", (), "stop"),), TokenUsage(1, 200, 20, 200, 20))


async def open_pausing(latency_s: float, slots: int) -> PausingEngine:
    """Open such an engine."""
    return PausingEngine(latency_s, slots)


async def open_remembering(latency_s: float, slots: int) -> CachedGenerator:
    """Open such an engine that computes nothing twice."""
    return CachedGenerator(PausingEngine(latency_s, slots))


async def pausing_method(question: Question, tools: Tools, hops: int = HOPS) -> Answer:
    """Ask ``hops`` times, one after the other, as a chain does."""
    transcript = [question.text]
    for hop in range(hops):
        prompt = Prompt((Message("user", (Segment(" ".join(transcript)),)),))
        transcript.append((await tools.generate(prompt, role="hop", max_tokens=20, path=f"hop {hop}")).text)
    return Answer(transcript[-1], steps=hops, stopped="done")
