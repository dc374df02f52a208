"""What clients of OpenAI's protocol send by themselves is answered; see :mod:`tests.service.clients`."""

import json
from contextlib import asynccontextmanager

import httpx
import pytest

from corag.service.answering import AnswerService
from corag.service.conversation import is_job
from corag.service.http.app import create_app
from corag.service.http.gate import AccessRules
from corag.service.keys import Keys
from corag.service.options import read_presets
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.service.clients import BODIES, CHAT, QUESTION, USER
from tests.service.serving import PASSAGES, corag_preset, options, replies

PRESETS = {
    "one_step": {"method": "one_step"},
    "ircot": {"method": "ircot"},
    "corag": corag_preset(max_hops=1),
}
TASK = "### Task:\nGenerate a concise, 3-5 word title.\n### Chat History:\n"


def reply(request):
    if request.prompt.text.startswith("### Task:"):
        return '{"title": "Mayor of Karlen"}'
    known = replies(request)
    return known if not known.startswith("about ") else "So the answer is: Ada Orm."


@asynccontextmanager
async def in_process(**more):
    """Yield a client of a service without a port, and the service."""
    config = options(PRESETS, **more)
    generator, retriever = ScriptedGenerator(reply), WordRetriever(PASSAGES)
    service = AnswerService(config, read_presets(config), generator, retriever, lambda event, **told: None)
    transport = httpx.ASGITransport(create_app(service, AccessRules(Keys())))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client, service
    await service.close()


def read_extension(body, text):
    """Return the visible text of a reply and its field "corag"."""
    if not body.get("stream"):
        whole = json.loads(text)
        return whole["choices"][0]["message"]["content"], whole["corag"]
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas), [
        chunk["corag"] for chunk in chunks if "corag" in chunk
    ][-1]


@pytest.mark.parametrize("each", BODIES, ids=lambda each: f"{each.client}: {each.kind}")
async def test_what_a_client_sends_by_itself_is_answered_by_every_method(each):
    async with in_process() as (client, service):
        for preset in PRESETS:
            service._generator.requests.clear()
            searches = len(service.index.retriever.queries)
            answer = await client.post(CHAT, json={"model": preset, **each.body})
            if each.refused:
                assert answer.status_code == 400
                assert answer.json()["error"]["param"].startswith(each.refused)
                continue
            assert answer.status_code == 200, answer.text
            text, extension = read_extension(each.body, answer.text)
            assert text and set(extension["ignored"]) == (set() if each.job else each.ignored)
            assert (extension["stopped"] == "job") == each.job
            assert all(extension["ignored"].values()), "each has its reason"
            if each.job:
                assert len(service._generator.requests) == 1, "one plain call"
                assert len(service.index.retriever.queries) == searches
            else:
                assert len(service.index.retriever.queries) > searches


@pytest.mark.parametrize(
    "question",
    [
        "What is the title of the first song on the album that the user made?",
        "### Task:\nRespond to the user query using the provided context.\n<context>x</context>\n\nWho?",
        "",
    ],
)
def test_a_question_is_no_job(question):
    assert not is_job(question)


async def test_a_job_over_a_long_conversation_keeps_its_instruction_and_is_not_recorded(tmp_path):
    async with in_process(out=str(tmp_path)) as (client, service):
        body = {"model": "one_step", "messages": [{"role": "user", "content": TASK + "word " * 20_000}]}
        assert (await client.post(CHAT, json=body)).json()["corag"]["stopped"] == "job"
        (prompt,) = service._generator.prompts
        assert prompt.startswith(TASK) and len(prompt) <= 40_000
    assert not any(file.stat().st_size for file in tmp_path.glob("*/traces.jsonl"))


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"max_tokens": -1, "seed": 7.0, "temperature": None, "tools": []}, set()),
        ({"modalities": ["text", "audio"], "audio": {"voice": "x"}}, {"modalities", "audio"}),
        ({"stop": ["", "zzz"], "logit_bias": {"7": 1}, "best_of": 2}, {"logit_bias", "best_of"}),
        ({"stream_options": {"include_usage": True, "chunk_s": 1}}, set()),
    ],
)
async def test_odd_values_of_known_fields_are_passed_over_and_named(fields, ignored):
    async with in_process() as (client, _):
        said = await client.post(CHAT, json={"model": "one_step", "messages": [USER], **fields})
        assert said.status_code == 200 and set(said.json()["corag"]["ignored"]) == ignored


@pytest.mark.parametrize(
    ("content", "is_whole"),
    [
        ([{"text": QUESTION}], True),
        ([{"type": "text", "text": QUESTION}, {"type": "file", "file": {"file_data": "JVBERi0="}}], False),
        ([{"type": "text", "text": QUESTION}, 7, {"type": None}], False),
    ],
)
async def test_texts_are_read_and_messages_with_other_parts_are_named(content, is_whole):
    async with in_process() as (client, service):
        body = {"model": "one_step", "messages": [{"role": "user", "content": content}]}
        said = (await client.post(CHAT, json=body)).json()
        assert len(service.index.retriever.queries) == 1 and QUESTION in service._generator.prompts[0]
        assert set(said["corag"]["ignored"]) == (set() if is_whole else {"messages[0].content"})


async def test_an_image_before_a_question_does_not_end_a_conversation():
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    async with in_process() as (client, _):
        conversation = [image, {"role": "assistant", "content": "An image."}, USER]
        said = await client.post(CHAT, json={"model": "one_step", "messages": conversation})
        assert set(said.json()["corag"]["ignored"]) == {"messages[0].content"}
        said = await client.post(CHAT, json={"model": "one_step", "messages": [image]})
        assert said.status_code == 400 and "must say something" in said.json()["error"]["message"]


async def test_a_page_that_sends_the_place_of_the_answer_too_is_answered():
    async with in_process() as (client, service):
        body = {"model": "one_step", "messages": [USER, {"role": "assistant", "content": ""}]}
        assert (await client.post(CHAT, json=body)).status_code == 200
        assert len(service.index.retriever.queries) == 1 and QUESTION in service._generator.prompts[0]
        body["messages"][1]["content"] = "The mayor is"  # to be gone on with, which an answer is not
        assert (await client.post(CHAT, json=body)).status_code == 400


async def test_a_budget_that_is_not_enough_is_named():
    # a job is one call, which a budget of one token cannot pay for
    body = {"model": "one_step", "messages": [{"role": "user", "content": TASK}]}
    async with in_process(budget=1) as (client, _):
        said = await client.post(CHAT, json=body)
        assert (said.status_code, said.json()["error"]["code"]) == (400, "budget_exhausted")
        said = await client.post(CHAT, json={**body, "corag": {"budget": 50}})
        assert said.status_code == 400, "the service's own holds"
