"""POST /retrieve of a search server, asked by clients written after those of agents that are trained."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from corag.core.errors import BackendError, SearchFailedError
from corag.core.types import Hit, Passage
from retrieval.index.manifest import IndexPart
from retrieval.search.stage import SearchStage
from tests.fakes import WordRetriever
from tests.retrieval.conftest import make_passages
from tests.retrieval.test_http import served


class SearchR1:
    """The requests and the parsing of Search-R1's ``LLMGenerationManager``, and of Tree-GRPO's and verl's."""

    def __init__(self, url: str, topk: int) -> None:
        self._client, self._topk = httpx.AsyncClient(base_url=url), topk

    async def batch_search(self, queries: Sequence[str]) -> list[str]:
        payload = {"queries": list(queries), "topk": self._topk, "return_scores": True}
        reply = (await self._client.post("/retrieve", json=payload)).raise_for_status()
        return [self._passages2string(result) for result in reply.json()["result"]]

    @staticmethod
    def _passages2string(retrieval_result: list[dict[str, Any]]) -> str:
        reference = ""
        for number, item in enumerate(retrieval_result):
            content = item["document"]["contents"]
            title = content.split("\n")[0]
            text = "\n".join(content.split("\n")[1:])
            reference += f"Doc {number + 1}(Title: {title}) {text}\n"
        return reference


@pytest.fixture
async def server() -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """Return a client of a server of a small corpus, and the server's address."""
    async with served(WordRetriever(make_passages())) as url, httpx.AsyncClient(base_url=url) as client:
        yield client, url


async def test_search_r1s_client_reads_titles_and_texts(server: tuple[httpx.AsyncClient, str]) -> None:
    first, second = await SearchR1(server[1], 2).batch_search(["mayor of Town03", "Town05 lies on the river"])
    assert first.startswith(
        'Doc 1(Title: "Mayor of Town03") Mayor number 3 of Town03 began by selling paper in 1903.\nDoc 2(T'
    )
    assert second.startswith('Doc 1(Title: "Town05") Town05 lies on the river Fenwick and is known for its')


async def test_both_shapes_and_what_is_left_out(server: tuple[httpx.AsyncClient, str]) -> None:
    client, queries = server[0], ["mayor of Town03", "Town05 lies on the river"]

    async def ask(**body: Any) -> list[Any]:
        reply = (await client.post("/retrieve", json=body)).raise_for_status().json()
        assert list(reply) == ["result"]
        return list(reply["result"])

    scored = await ask(queries=queries, topk=2, return_scores=True)
    plain = await ask(queries=queries, topk=2)
    assert plain == [[item["document"] for item in items] for items in scored]
    assert plain[0][0] == {
        "id": "m3", "contents": '"Mayor of Town03"\nMayor number 3 of Town03 began by selling paper in 1903.',
    }  # fmt: skip
    assert all(one["score"] >= other["score"] > 0 for one, other in scored)
    # verl-tool's client takes documents without a score, too.
    for body in ({}, {"topk": None, "return_scores": False}, {"topk": 0}):
        assert [len(items) for items in await ask(queries=queries, **body)] == [3, 3], "Search-R1's default"
    assert await ask(queries=["  ", "xyzzy"], topk=2) == [[], []]
    assert await ask(queries=[]) == []


async def test_browsecomp_pluss_client_reads_one_query(server: tuple[httpx.AsyncClient, str]) -> None:
    reply = await server[0].post("/retrieve", json={"query": "mayor of Town03"})
    items = reply.json()["result"]
    assert len(items) == 5 and items[0]["docid"] == "m3"
    assert items[0]["document"]["title"] == "Mayor of Town03"
    assert items[0]["document"]["text"].startswith("Mayor number 3")


class Batches(SearchStage):
    """A retriever that counts what comes at once; some queries fail."""

    fingerprint = "batches"

    def __init__(self) -> None:
        self.in_flight = self.most = 0

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if query == "refused":
            raise SearchFailedError("this query is refused")
        if query == "gone":
            raise BackendError("the index is gone")
        return [Hit(Passage(query, "A\ntitle", "x"), 1.0), Hit(Passage("2", "", "y", "notes.pdf", 3), 0.5)]

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        return []

    async def close(self) -> None: ...


async def test_hundreds_of_queries_are_searched_at_once_and_one_does_not_spoil_the_others() -> None:
    retriever = Batches()
    async with served(retriever) as url, httpx.AsyncClient(base_url=url) as client:
        queries = [*map(str, range(799)), "refused"]
        reply = (await client.post("/retrieve", json={"queries": queries, "topk": 2})).json()
        assert retriever.most == 800
        assert [items[0]["id"] for items in reply["result"][:-1]] == queries[:-1]
        assert reply["result"][-1] == [] and reply["errors"] == {"799": "this query is refused"}
        contents = [item["contents"] for item in reply["result"][0]]
        assert contents == ['"A title"\nx', '"notes.pdf, page 3"\ny'], "a title is one line"
        assert (await client.post("/retrieve", json={"queries": ["gone"]})).status_code == 503
        single = (await client.post("/retrieve", json={"query": "refused"})).json()
        assert single == {"result": [], "errors": {"0": "this query is refused"}}


async def test_wrong_requests_are_told_what_is_expected() -> None:
    async with served(Batches()) as url, httpx.AsyncClient(base_url=url) as client:
        for body, sentence in (
            ({}, "'queries' must be a list of strings, such as"),
            ({"queries": ["mayor", 3]}, "'queries' must be a list of strings"),
            ({"query": ["mayor"]}, "'query' must be a string"),
            ({"queries": ["mayor"], "topk": "3"}, "a whole number from 1 to 1,000, but is '3'"),
            ({"queries": ["mayor"], "topk": 1_001}, "but is 1001"),
            ({"queries": ["mayor"] * 2_000, "topk": 100}, "ask for 200,000 passages"),
            (["mayor"], "must be a JSON object"),
        ):
            reply = await client.post("/retrieve", json=body)
            assert reply.status_code == 400 and sentence in reply.json()["error"]


async def test_a_part_of_an_index_is_not_taken_for_the_whole() -> None:
    class Part(Batches):
        part = IndexPart(2, 4, "whole")

    part = Part()
    async with served(part) as url, httpx.AsyncClient(base_url=url) as client:
        reply = await client.post("/retrieve", json={"queries": ["mayor"]})
        assert reply.status_code == 400 and "part 2/4" in reply.json()["error"]
