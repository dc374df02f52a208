"""The search server and its client, over loopback."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from corag.core.errors import BackendError, ConfigError, IndexMismatchError, SearchFailedError
from corag.core.protocols import Retriever
from corag.core.types import Hit, Passage
from retrieval.config import RetrieverConfig
from retrieval.http.server import serve
from retrieval.search.pipeline import open_retriever
from retrieval.search.stage import SearchStage
from tests.fakes import WordRetriever
from tests.messages import raises_message
from tests.retrieval.conftest import make_passages
from tests.serving import free_port


@asynccontextmanager
async def served(retriever: Retriever) -> AsyncIterator[str]:
    """Serve a retriever on a free port and hand out its address."""
    told: asyncio.Queue[str] = asyncio.Queue()
    server = asyncio.create_task(serve(retriever, "127.0.0.1", 0, told.put_nowait))
    try:
        yield (await told.get()).split(" at ")[1]
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


class Troubled(SearchStage):
    """A retriever that is slow, broken or gone, depending on the query."""

    def __init__(self, fingerprint: str = "troubled") -> None:
        self.fingerprint = fingerprint

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        if query == "slow":
            await asyncio.sleep(5)
        if query == "broken":
            raise SearchFailedError("this query is refused")
        if query == "gone":
            raise BackendError("the index is gone")
        return [Hit(Passage("1", "T", "x"), 0.5)]

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        return []

    async def close(self) -> None: ...


async def test_a_served_index_answers_as_the_index_itself() -> None:
    local = WordRetriever(make_passages())
    async with served(local) as url:
        remote = await open_retriever(RetrieverConfig(url=[url, url + "/"]))
        assert remote.fingerprint == local.fingerprint
        queries = [f"bridge mayor Town{number:02d} naïve 😀" for number in range(24)]
        queries += [" ", " ".join(map(str, range(2_000)))]
        answers = await asyncio.gather(
            *(remote.search(query, 1 + number % 4) for number, query in enumerate(queries))
        )
        for number, (query, hits) in enumerate(zip(queries, answers, strict=True)):
            assert list(hits) == list(await local.search(query, 1 + number % 4))
        assert list(await remote.passages(["b3", "?", "t0"])) == list(await local.passages(["b3", "?", "t0"]))
        await remote.close()


async def test_slow_broken_and_gone_are_told_apart() -> None:
    async with served(Troubled()) as url:
        remote = await open_retriever(RetrieverConfig(url=[url], timeout_s=0.3, retries=1))
        with raises_message(SearchFailedError):
            await remote.search("slow", 3)
        with raises_message(SearchFailedError):
            await remote.search("broken", 3)
        with raises_message(BackendError):
            await remote.search("gone", 3)
        assert len(await remote.search("fine", 3)) == 1
        await remote.close()


async def test_an_unreachable_server_is_a_sentence_and_quick() -> None:
    started = time.monotonic()
    with raises_message(BackendError):
        await open_retriever(RetrieverConfig(url=[f"http://127.0.0.1:{free_port()}"], retries=1))
    assert time.monotonic() - started < 5


async def test_a_server_that_dies_is_survived_by_its_sibling() -> None:
    async with served(Troubled()) as staying:
        async with served(Troubled()) as dying:
            remote = await open_retriever(RetrieverConfig(url=[dying, staying], retries=2, cache_size=0))
        hits = await asyncio.gather(*(remote.search("fine", 1) for _ in range(8)))
        assert all(len(found) == 1 for found in hits)
        await remote.close()


async def test_servers_must_search_the_same_index_and_be_search_servers() -> None:
    async with served(Troubled("a")) as one, served(Troubled("b")) as other:
        with raises_message(IndexMismatchError):
            await open_retriever(RetrieverConfig(url=[one, other]))
        with raises_message(BackendError):
            await open_retriever(RetrieverConfig(url=[one + "/elsewhere"], retries=0))
        port = int(one.rsplit(":", 1)[1])
        with raises_message(ConfigError):
            await serve(Troubled(), "127.0.0.1", port, print)
