"""Never compute twice: identical requests at temperature 0 are joined while in flight and remembered once finished.

Sub-answers repeat across chains, rollouts and depths, and at temperature 0 a reply is a pure function of its request.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Generic, TypeVar

from core.protocols import GenerateRequest, Generation, Generator, Score, ScoreRequest

Reply = TypeVar("Reply", Generation, Score)


class _Memo(Generic[Reply]):
    """Replies by request: a task per request in flight, the last ``capacity`` finished ones."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._finished: OrderedDict[bytes, Reply] = OrderedDict()
        self._running: dict[bytes, asyncio.Task[Reply]] = {}

    def remembered(self, key: bytes) -> Reply | None:
        """Return a finished reply, and note that it was wanted again."""
        if key in self._finished:
            self._finished.move_to_end(key)
        return self._finished.get(key)

    def running(self, key: bytes) -> asyncio.Task[Reply] | None:
        """Return the task that is working on this request."""
        return self._running.get(key)

    def start(self, key: bytes, work: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply]:
        """Work on a request in a task of its own, so that a caller who gives up does not take it from those who joined."""
        task = self._running[key] = asyncio.create_task(work)
        task.add_done_callback(lambda done: self._finish(key, done))
        return task

    def _finish(self, key: bytes, task: asyncio.Task[Reply]) -> None:
        del self._running[key]
        if task.cancelled() or task.exception() is not None:
            return  # failures are not remembered: the next request tries afresh
        self._finished[key] = task.result()
        if len(self._finished) > self._capacity:
            self._finished.popitem(last=False)

    def cancel(self) -> None:
        """Give up what is in flight."""
        for task in self._running.values():
            task.cancel()


class RememberingGenerator:
    """A :class:`Generator` around another that never computes a temperature-0 request or a score twice.

    Replies from memory carry the usage of the original, counted in full, computed not at all. A joined request keeps the priority
    of the first.
    """

    def __init__(self, inner: Generator, capacity: int = 50_000) -> None:
        """``capacity``: most replies that are remembered, of generations and of scores each; the least recently used go first."""
        self._inner = inner
        self._generations: _Memo[Generation] = _Memo(capacity)
        self._scores: _Memo[Score] = _Memo(capacity)

    @property
    def fingerprint(self) -> str:
        """The inner generator's fingerprint."""
        return self._inner.fingerprint

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._inner.count_tokens(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt, from memory if it is a temperature-0 request that was met before."""
        if request.sampling.temperature > 0:
            return await self._inner.generate(request)
        key = _digest(replace(request, sampling=replace(request.sampling, seed=None), priority=0, affinity=""))
        return await _recall(self._generations, key, lambda: self._inner.generate(request))

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, from memory if it was asked for before."""
        key = _digest(replace(request, priority=0, affinity=""))
        return await _recall(self._scores, key, lambda: self._inner.score(request))

    async def close(self) -> None:
        """Give up what is in flight and close the inner generator."""
        self._generations.cancel()
        self._scores.cancel()
        await self._inner.close()


def _digest(request: GenerateRequest | ScoreRequest) -> bytes:
    """Identify a request in 16 bytes: remembering whole prompts would cost more memory than the replies."""
    return hashlib.blake2b(repr(request).encode(errors="surrogatepass"), digest_size=16).digest()


async def _recall(memo: _Memo[Reply], key: bytes, ask: Callable[[], Coroutine[Any, Any, Reply]]) -> Reply:
    if (reply := memo.remembered(key)) is not None:
        return replace(reply, usage=reply.usage.remembered())
    if (running := memo.running(key)) is not None:
        reply = await asyncio.shield(running)
        return replace(reply, usage=reply.usage.remembered())
    return await asyncio.shield(memo.start(key, ask()))
