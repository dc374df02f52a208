"""Never compute a reply twice.

At temperature 0 a reply depends on its request alone, up to rounding, and sub-answers repeat across chains,
rollouts and depths. A sample with a seed is as repeatable. Seeds derive from question, role and place in the
search, so within a run no two samples are the same request; but of a sweep's settings, best of 8 asks for
every chain of best of 4, and chains of six hops begin with those of four.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from corag.core.protocols import GenerateRequest, Generation, Generator, GeneratorStage, Score, ScoreRequest
from corag.core.request_cache import RequestCache

REPLIES_KEPT = 50_000  # replies of a kind that are remembered, about 1.5 kB each


class CachedGenerator(GeneratorStage):
    """A :class:`Generator` around another that computes no greedy request, seeded sample or score twice.

    Replies from the cache carry the usage of the original, counted in full, computed not at all. A joined
    request keeps the priority of the first. Samples without a seed are drawn afresh each time; n samples are
    one request, so a part of them is another.
    """

    def __init__(self, inner: Generator, capacity: int = REPLIES_KEPT) -> None:
        """``capacity``: most replies that are remembered, of each kind; the least recently used go first.

        Samples are a kind of their own: within one run none is asked for again, so they would only push out
        greedy replies, which are.
        """
        super().__init__(inner)
        self._greedy: RequestCache[bytes, Generation] = RequestCache(capacity)
        self._samples: RequestCache[bytes, Generation] = RequestCache(capacity)
        self._scores: RequestCache[bytes, Score] = RequestCache(capacity)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt, from the cache if this greedy request or seeded sample was met before."""
        greedy = request.sampling.temperature == 0
        seed = None if greedy else request.sampling.seed
        if not greedy and seed is None:
            return await self._inner.generate(request)
        # A greedy request's seed, and what says only when and where it is computed, make no other request of
        # it.
        same = replace(request, sampling=replace(request.sampling, seed=seed), priority=0, affinity="")
        key, cache = _digest(same), self._greedy if greedy else self._samples
        reply, from_cache = await cache.fetch(key, lambda: self._inner.generate(request))
        if not from_cache:
            return reply
        return replace(reply, usage=reply.usage.remembered(), thinking=reply.thinking.remembered())

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a given continuation, from the cache if it was asked for before."""
        key = _digest(replace(request, priority=0, affinity=""))
        score, from_cache = await self._scores.fetch(key, lambda: self._inner.score(request))
        return replace(score, usage=score.usage.remembered()) if from_cache else score

    def forget(self) -> None:
        """Forget all replies: another model may have taken the place of the one that gave them."""
        for cache in (self._greedy, self._samples, self._scores):
            cache.forget()

    async def close(self) -> None:
        """Cancel what is in flight and close the inner generator."""
        for cache in (self._greedy, self._samples, self._scores):
            cache.cancel()
        await self._inner.close()


def _digest(request: GenerateRequest | ScoreRequest) -> bytes:
    """Identify a request in 16 bytes: remembering whole prompts would cost more memory than the replies."""
    return hashlib.blake2b(repr(request).encode(errors="surrogatepass"), digest_size=16).digest()
