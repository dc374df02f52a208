"""The search client against a server that fails: nonsense with status 200 is tried again like a 503."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import pytest

from corag.core.errors import BackendError, CoragError, SearchFailedError
from retrieval.config import RetrieverConfig
from retrieval.search.pipeline import open_retriever
from tests.failing_search import FAULTS, Failing
from tests.messages import raises_message

pytestmark = pytest.mark.slow


def drawn(share: float, seed: int) -> Iterator[str]:
    """Yield for ever one of the faults with this probability, else ""."""
    draw = random.Random(seed)
    while True:
        yield draw.choice(FAULTS) if draw.random() < share else ""


def given(url: str, retries: int = 3, timeout_s: float = 2) -> RetrieverConfig:
    return RetrieverConfig(url=[url], timeout_s=timeout_s, retries=retries, cache_size=0)


async def test_sixty_searches_survive_fifteen_percent_of_seven_faults() -> None:
    with Failing() as server:
        remote = await open_retriever(given(server.url))
        server.asked, server.faults = 0, drawn(0.15, seed=1)
        found = await asyncio.gather(*(remote.search(f"query {number}", 3) for number in range(60)))
        assert all([hit.passage.text for hit in hits] == ["x"] for hits in found)
        assert server.asked > 65, "some were tried again"
        await remote.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_server_that_always_fails_ends_in_one_sentence(fault: str) -> None:
    with Failing() as server:
        config = given(server.url, retries=1, timeout_s=0.5 if fault == "hang" else 2)
        remote = await open_retriever(config)
        server.asked, server.faults = 0, iter([fault] * 99)
        started = time.monotonic()
        expected = BackendError if fault in ("503", "429", "truncated") else SearchFailedError
        with pytest.raises(expected) as error:
            await remote.search("query", 3)
        assert server.asked == 2 and time.monotonic() - started < 15
        assert "\n" not in str(error.value) and server.url in str(error.value)
        with pytest.raises(CoragError) as at_once:  # nor does a run begin with it
            await open_retriever(config)
        assert "\n" not in str(at_once.value)
        await remote.close()


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b'{"results": [{"hits": [',
        b'{"results": null}',
        b'{"results": [{"hits": []}, {"hits": []}]}',
        b'{"results": [{"hits": [7]}]}',
        b'{"results": [{"hits": [{"id": "1", "title": "T", "text": null, "score": 1}]}]}',
        b'{"results": [{"hits": [{"id": "1", "title": "T", "text": "x", "score": null}]}]}',
        pytest.param(
            b'{"results": [{"hits": ['
            + b",".join([b'{"id":"1","title":"T","text":"x","score":1}'] * 9)
            + b"]}]}",
            id="body14",
        ),
    ],
)
async def test_nonsense_with_status_200_is_tried_again(body: bytes) -> None:
    with Failing() as server:
        remote = await open_retriever(given(server.url, retries=1))
        server.faults = iter([body])
        assert len(await remote.search("query", 3)) == 1
        server.faults = iter([body, body])
        with raises_message(SearchFailedError):
            await remote.search("query", 3)
        await remote.close()


async def test_passages_and_the_first_greeting_are_tried_again_too() -> None:
    with Failing() as server:
        server.faults = iter([b"<html>", b'{"status": "ok"}', ""])
        remote = await open_retriever(given(server.url))
        server.faults = iter([b'{"passages": {}}', b'{"passages": [{"id": "1"}]}', ""])
        assert [passage.text for passage in await remote.passages(["1"])] == ["x"]
        await remote.close()
