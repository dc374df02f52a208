"""Work that several wait for goes on for those who still wait, and no longer than that."""

import asyncio

import pytest

from corag.core.request_cache import RequestCache


class Work:
    """A piece of work that ends when it is let go, and knows what became of it."""

    def __init__(self):
        self.let_go, self.begun, self.cancelled = asyncio.Event(), 0, 0

    async def __call__(self):
        self.begun += 1
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "done"


async def test_work_ends_with_the_last_who_waits_for_it():
    cache, work = RequestCache(10), Work()
    first, second = (asyncio.create_task(cache.fetch("key", work)) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (work.begun, work.cancelled) == (1, 0), "the second still waits"
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await asyncio.sleep(0)
    assert work.cancelled == 1


async def test_who_comes_while_work_is_given_up_begins_it_anew():
    cache, work = RequestCache(10), Work()
    first = asyncio.create_task(cache.fetch("key", work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    again = asyncio.create_task(cache.fetch("key", work))
    await asyncio.sleep(0)
    work.let_go.set()
    assert await again == ("done", False)
    assert await cache.fetch("key", work) == ("done", True) and work.begun == 2
