"""What a service owes its callers at the edges: small budgets, failing parts, agents, several presets."""

import asyncio
import json

import pytest
from mcp import Client

from corag.core.errors import ConfigError, SearchFailedError
from corag.service import answering
from corag.service.errors import CallError
from corag.service.http.body import read_body
from corag.service.http.chat import read_chat
from corag.service.http.gate import allowed_hosts
from corag.service.options import AnswersOptions, Limits, read_presets
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.service.serving import PASSAGES, corag_preset, options, replies, served, until

PLAIN = {"plain": {"method": "closed_book"}}


def ask(text):
    return [{"role": "user", "content": text}]


def parse(body):
    return read_chat(read_body(json.dumps(body).encode()), AnswersOptions())


async def test_the_least_budget_of_caller_preset_and_service_holds():
    given = options({"corag": corag_preset(max_hops=2), "tight": corag_preset(max_hops=2) | {"budget": 1}})
    async with served(given) as running:
        spent = [
            (await running.ask(model=name, corag={"budget": 2000})).json()["usage"]["total_tokens"]
            for name in ("corag", "tight")
        ]
        assert spent[0] > 1 and spent[1] == 0


@pytest.mark.parametrize(("option", "value"), [("keep_prompts", True), ("batch_size", 2)])
def test_a_preset_option_that_would_do_nothing_is_refused(option, value):
    with pytest.raises(ConfigError, match=f"preset 'a' changes {option}, but a preset has"):
        read_presets(options({"a": {"method": "closed_book", option: value}}))


async def test_readiness_comes_back_after_any_error_and_after_a_reply_that_never_comes(monkeypatch):
    from corag.core.errors import BackendError

    tries = 0

    def reply(request):
        nonlocal tries
        tries += 1
        if tries == 1:
            raise BackendError("gone")
        if tries == 2:
            raise OSError("a socket of /secret/path")
        return replies(request)

    async def pause(request):
        if tries == 2:
            await asyncio.sleep(60)

    monkeypatch.setattr(answering, "_PROBE_EVERY_S", 0.02)
    monkeypatch.setattr(answering, "_PROBE_MOST_S", 0.1, raising=False)
    generator = ScriptedGenerator(reply, pause)
    async with served(generator=generator) as running, running.client() as client:
        assert (await running.ask()).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        again = await running.ask()
        assert again.status_code == 503 and again.headers["retry-after"] == "5"
        await until(lambda: tries > 1)
        assert (await client.get("/readyz")).status_code == 503
        await asyncio.sleep(0.3)  # in which a probe is given up, and another one asked
        assert not running.service.ready and "secret" not in str(running.log)
        tries = 3
        await until(lambda: running.service.ready, 5)
        assert (await running.ask()).status_code == 200


class StuckRetriever(WordRetriever):
    """Finds nothing until it is let go."""

    def __init__(self):
        super().__init__(PASSAGES)
        self.let_go = asyncio.Event()

    async def search(self, query, k, hop=False):
        await self.let_go.wait()
        return await super().search(query, k)


async def test_searches_of_agents_have_shares_and_an_end():
    stuck = StuckRetriever()
    given = options(PLAIN, limits=Limits(in_flight=2, queue=2, per_key=2, answer_s=0.3))
    async with served(given, retriever=stuck) as running:
        search = running.service.search
        held = [asyncio.create_task(search("river", 1, "alpha")) for _ in range(2)]
        await asyncio.sleep(0)
        with raises_message(CallError):
            await search("river", 1, "alpha")
        late = await asyncio.gather(*held, return_exceptions=True)
        assert [error.status for error in late] == [504, 504]
        stuck.let_go.set()
        async with Client(f"{running.url}/mcp") as client:
            assert not (await client.call_tool("search", {"query": "river"})).is_error
        assert running.service.admission.claims == 0


async def test_a_follow_up_with_a_small_budget_is_answered_with_what_there_is():
    conversation = [*ask("Who?"), {"role": "assistant", "content": "Ada Orm"}, *ask("Where was she born?")]
    async with served() as running:
        assert (await running.ask(messages=conversation, corag={"budget": 1})).status_code == 200


LONG = "Where was she born, " + "and where was her mother born, " * 12 + "and when?"


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ('"Where was Ada Orm born?"', "Where was Ada Orm born?"),
        ('"Ada" or "Orm"', '"Ada" or "Orm"'),
        ("born " * 200, "Who? Where was she born?"),  # never ends, so it is cut off
        (LONG, LONG),  # longer than what a short question may become
    ],
)
async def test_a_follow_up_is_never_asked_in_part(said, asked):
    last = LONG if asked == LONG else "Where was she born?"
    conversation = [*ask("Who?"), {"role": "assistant", "content": "Ada Orm"}, *ask(last)]

    def reply(request):
        return said if "self-contained" in request.prompt.text else replies(request)

    async with served(generator=ScriptedGenerator(reply, cuts=True)) as running:
        assert (await running.ask(messages=conversation)).status_code == 200
        searched = running.service.index.retriever.queries[0]
        assert searched == asked


def test_nothing_that_is_wrong_is_left_out_without_a_word():
    body = {"model": "plain", "messages": ask("Who?"), "stream": True}
    for wrong in ({"max_tokens": "x", "max_completion_tokens": 3}, {"corag": {"budgte": 5}}):
        with raises_message(CallError):
            parse({**body, **wrong})


async def test_a_passage_that_cannot_be_fetched_now_is_no_defect():
    class FailingRetriever(WordRetriever):
        async def passages(self, ids):
            raise SearchFailedError("the server at /secret/path is busy")

    async with served(retriever=FailingRetriever(PASSAGES)) as running, running.client() as client:
        said = await client.get("/v1/passages/karlen")
        assert (said.status_code, said.json()["error"]["code"]) == (503, "search_failed")
        assert not running.logged("defect")


async def test_names_have_no_case():
    assert "answers.example.org" in allowed_hosts("127.0.0.1", ["Answers.Example.org"])
    async with served(options(PLAIN, hosts=["Answers.Example.org"])) as running, running.client() as client:
        for name in ("Answers.Example.org", "answers.example.org:443"):
            assert (await client.get("/v1/models", headers={"host": name})).status_code == 200
