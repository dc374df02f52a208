"""The search cache: asked once, joined in flight, failures forgotten."""

import asyncio
from collections.abc import Sequence

import pytest

from corag.core.errors import SearchFailedError
from corag.core.tools import SearchStep, Tools
from corag.core.types import Hit, Passage, Question
from retrieval.search.cached import CachedRetriever
from retrieval.search.stage import SearchStage
from tests.fakes import ScriptedGenerator


class Counting(SearchStage):
    """A retriever that notes what it is asked and fails for the query "fail" until told otherwise."""

    fingerprint = "counting"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.broken = True

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        self.asked.append((query, k))
        await asyncio.sleep(0.01)
        if query == "fail" and self.broken:
            raise SearchFailedError("no luck")
        return [Hit(Passage(query, "", query), 1.0)]

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        return []

    async def close(self) -> None: ...


async def test_identical_searches_are_joined_and_remembered() -> None:
    inner = Counting()
    cached = CachedRetriever(inner, size=10)
    hits = await asyncio.gather(*(cached.search("a", 2) for _ in range(5)), cached.search("a", 3))
    assert len({tuple(found) for found in hits}) == 1
    await cached.search("a", 2)
    assert sorted(inner.asked) == [("a", 2), ("a", 3)]


async def test_a_search_that_cost_nothing_says_so_in_its_step() -> None:
    cached = CachedRetriever(Counting(), size=10)
    tools = [Tools(Question(name, "Who?"), ScriptedGenerator(lambda request: ""), cached) for name in "ab"]
    await asyncio.gather(*(each.search("a", k=2) for each in tools))
    for query, k in (("a", 2), ("a", 3), ("b", 2), ("", 2)):
        await tools[0].search(query, k=k)
    steps = [[step.remembered for step in each.steps if isinstance(step, SearchStep)] for each in tools]
    assert steps == [[False, True, False, False, False], [True]]


async def test_the_least_recently_used_is_forgotten() -> None:
    inner = Counting()
    cached = CachedRetriever(inner, size=2)
    for query in ("a", "b", "a", "c", "a", "b"):
        await cached.search(query, 1)
    assert [query for query, _ in inner.asked] == ["a", "b", "c", "b"]
    nothing_kept = CachedRetriever(inner, size=0)
    inner.asked.clear()
    await asyncio.gather(nothing_kept.search("a", 1), nothing_kept.search("a", 1))
    await nothing_kept.search("a", 1)
    assert len(inner.asked) == 2


async def test_a_failure_reaches_all_who_wait_and_is_tried_again() -> None:
    inner = Counting()
    cached = CachedRetriever(inner, size=10)
    failures = await asyncio.gather(
        cached.search("fail", 1), cached.search("fail", 1), return_exceptions=True
    )
    assert all(isinstance(failure, SearchFailedError) for failure in failures) and len(inner.asked) == 1
    inner.broken = False
    assert len(await cached.search("fail", 1)) == 1


async def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    cached = CachedRetriever(Counting(), size=10)
    first, second = asyncio.create_task(cached.search("a", 1)), asyncio.create_task(cached.search("a", 1))
    await asyncio.sleep(0)
    first.cancel()
    assert len(await second) == 1
    with pytest.raises(asyncio.CancelledError):
        await first
