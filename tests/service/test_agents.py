"""Agents: the official MCP client over HTTP against a service over the fake model."""

import asyncio
import re
from importlib.metadata import version

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from corag.core.types import Passage
from corag.service.keys import Keys
from tests.fakes import kind
from tests.service.serving import options, served, until

QUESTION = "Who is the mayor of Karlen?"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_asks_and_searches(mode):
    async with served(options()) as running, Client(f"{running.url}/mcp", mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"ask", "search"} and "plain, corag, sampled" in tools["ask"].description
        assert tools["ask"].output_schema["properties"]["answer"]["type"] == "string"
        told = []

        async def progress(done, total, message):
            told.append((done, message))

        result = await client.call_tool(
            "ask", {"question": QUESTION, "preset": "corag"}, progress_callback=progress
        )
        answer = result.structured_content
        assert answer["answer"] == "Ada Orm" and answer["preset"] == "corag" and answer["tokens"] > 0
        assert any(source["title"] == "Karlen" for source in answer["sources"])
        await until(lambda: len(told) >= 3)
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert any("searched: Who is the mayor of Karlen?" in message for _, message in told)
        found = await client.call_tool("search", {"query": "river Iss", "k": 1})
        (hit,) = found.structured_content["hits"]
        assert hit["page"] is None, "a record has no pages"
        assert client.server_info.version == version("corag")
        assert hit["id"] == "velt" and "river Iss" in hit["text"] and hit["score"] > 0


async def test_an_agent_learns_which_documents_there_are_and_reads_the_sources_of_an_answer():
    page = Passage("k3", "Karlen", "Karlen is a town. Its mayor is Ada Orm.", "towns.pdf", 3)
    given = options(about="The town registers.")
    async with served(given, passages=[page]) as running, Client(f"{running.url}/mcp") as client:
        tools = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        assert all("The corpus: The town registers. " in f"{about} " for about in tools.values())
        (source,) = (await client.call_tool("ask", {"question": QUESTION})).structured_content["sources"]
        assert source["text"] == page.text
        assert (source["file"], source["page"]) == ("towns.pdf", 3)
        found = await client.call_tool("search", {"query": "Karlen", "k": 1})
        assert found.structured_content["hits"][0]["file"] == "towns.pdf"


async def test_an_agent_is_told_what_is_wrong_and_no_more():
    def reply(request):
        raise RuntimeError("a secret")

    async with served(options(), reply=reply) as running, Client(f"{running.url}/mcp") as client:
        for wrong in ({}, {"question": " "}, {"preset": "x"}, {"question": 7}):
            result = await client.call_tool("ask", {"question": QUESTION, **wrong})
            said = result.content[0].text
            assert result.is_error and said.endswith(".")
            assert not re.search("secret|Traceback|pydantic|Error executing", said)


async def test_an_agent_that_gives_up_frees_its_place():
    reached, cancelled = asyncio.Event(), asyncio.Event()

    async def pause(request):
        if kind(request) == "ANSWER":
            reached.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

    async with served(options(), pause=pause) as running:
        async with Client(f"{running.url}/mcp") as client:
            asking = asyncio.create_task(client.call_tool("ask", {"question": QUESTION}))
            await reached.wait()
            asking.cancel()
            await asyncio.wait_for(cancelled.wait(), 60)
            await until(lambda: running.service.admission.claims == 0)
        assert running.logged("left")


async def test_agents_have_keys_and_shares_too(tmp_path):
    file = tmp_path / "keys.txt"
    file.write_text("agent 0123456789abcdef\n")
    async with served(options(), keys=Keys(str(file))) as running:
        headers = {"authorization": "Bearer 0123456789abcdef"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(f"{running.url}/mcp", http_client=http)) as client,
        ):
            assert not (await client.call_tool("ask", {"question": QUESTION})).is_error
        assert running.logged("answered")[0]["key"] == "agent"
        async with running.client() as http_client:
            assert (await http_client.post("/mcp", json={})).status_code == 401


async def test_an_agent_outlives_a_restart():
    async with served() as running:
        port = int(running.url.rpartition(":")[2])
        client = await Client(f"{running.url}/mcp", mode="legacy").__aenter__()
        assert not (await client.call_tool("ask", {"question": QUESTION})).is_error
    async with served(port=port):
        assert not (await client.call_tool("ask", {"question": QUESTION})).is_error
        await client.__aexit__(None, None, None)
