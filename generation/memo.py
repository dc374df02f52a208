"""Never compute twice: identical repeatable requests are joined while in flight and remembered once finished.

At temperature 0 a reply is a pure function of its request, and sub-answers repeat across chains, rollouts and depths. A sample with
a seed is as repeatable. Seeds derive from question, role and place in the search, so within a run no two samples are the same
request; but of a sweep's settings, best of 8 asks for every chain of best of 4, and chains of six hops begin with those of four.
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

CAPACITY = 50_000
"""Replies of a kind that are remembered: about 1.5 kB each."""


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
    """A :class:`Generator` around another that never computes a greedy request, a sample with a seed, or a score twice.

    Replies from memory carry the usage of the original, counted in full, computed not at all. A joined request keeps the priority
    of the first. Samples without a seed are drawn afresh each time; n samples are one request, so a part of them is another.
    """

    def __init__(self, inner: Generator, capacity: int = CAPACITY) -> None:
        """``capacity``: most replies that are remembered, of each kind; the least recently used go first.

        Samples are a kind of their own: within one run none is asked for again, so they would only push out greedy replies, which
        are.
        """
        self._inner = inner
        self._greedy: _Memo[Generation] = _Memo(capacity)
        self._sampled: _Memo[Generation] = _Memo(capacity)
        self._scores: _Memo[Score] = _Memo(capacity)

    @property
    def fingerprint(self) -> str:
        """The inner generator's fingerprint."""
        return self._inner.fingerprint

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._inner.count_tokens(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt, from memory if it is a greedy request, or a sample with a seed, that was met before."""
        greedy = request.sampling.temperature == 0
        seed = None if greedy else request.sampling.seed
        if not greedy and seed is None:
            return await self._inner.generate(request)
        key = _digest(replace(request, sampling=replace(request.sampling, seed=seed), priority=0, affinity=""))
        memo = self._greedy if greedy else self._sampled
        return await _recall(memo, key, lambda: self._inner.generate(request))

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, from memory if it was asked for before."""
        key = _digest(replace(request, priority=0, affinity=""))
        return await _recall(self._scores, key, lambda: self._inner.score(request))

    async def close(self) -> None:
        """Give up what is in flight and close the inner generator."""
        for memo in (self._greedy, self._sampled, self._scores):
            memo.cancel()
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
