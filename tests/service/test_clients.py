"""What clients of OpenAI's protocol send by themselves is answered; see :mod:`tests.service.clients`."""

import json
import re
import time
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from corag.service.answering import AnswerService
from corag.service.http.addresses import ADDRESSES
from corag.service.http.app import create_app
from corag.service.http.gate import AccessRules
from corag.service.jobs import recognise_job
from corag.service.keys import Keys
from corag.service.options import read_presets
from corag.service.records import Records
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.service.clients import BODIES, CHAT, QUESTION, USER
from tests.service.serving import PASSAGES, corag_preset, options, replies

PRESETS = {
    "one_step": {"method": "one_step"},
    "ircot": {"method": "ircot"},
    "corag": corag_preset(max_hops=1),
}
GUIDE = Path(__file__).parents[2] / "docs/guides/service.md"


def reply(request):
    text = request.prompt.text
    if any(word in text for word in ("title", "tags", "follow-up", "queries", "most likely questions")):
        return '{"title": "Mayor of Karlen"}'
    known = replies(request)
    return known if not known.startswith("about ") else "So the answer is: Ada Orm."


@asynccontextmanager
async def in_process(**more):
    """Yield a client of a service without a port, and the service."""
    config = options(PRESETS, **more)
    presets = read_presets(config)
    generator, retriever = ScriptedGenerator(reply), WordRetriever(PASSAGES)
    with Records(config, presets, generator, retriever) as records:
        service = AnswerService(config, presets, generator, retriever, records, lambda event, **told: None)
        transport = httpx.ASGITransport(create_app(service, AccessRules(Keys())))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client, service


def read_extension(body, text):
    """Return the visible text of a reply and its field "corag"."""
    if not body.get("stream"):
        whole = json.loads(text)
        return visible_text(whole), whole["corag"]
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    shown = "".join(filter(None, map(streamed_text, chunks)))
    last = [each.get("response", each)["corag"] for each in chunks if "corag" in each.get("response", each)]
    return shown, last[-1]


def visible_text(whole):
    if "output" in whole:
        return whole["output"][-1]["content"][0]["text"]
    choice = whole["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def streamed_text(chunk):
    if "choices" not in chunk:
        return chunk.get("delta") if chunk["type"] == "response.output_text.delta" else ""
    choice = (chunk["choices"] or [{}])[0]
    return choice.get("text") or choice.get("delta", {}).get("content")


@pytest.mark.parametrize("each", BODIES, ids=lambda each: f"{each.client}: {each.kind}")
async def test_what_a_client_sends_by_itself_is_answered_by_every_method(each):
    async with in_process() as (client, service):
        for preset in PRESETS:
            service._generator.requests.clear()
            searches = len(service.index.retriever.queries)
            answer = await client.post(each.path, json={"model": preset, **each.body})
            if each.refused:
                assert answer.status_code == 400
                assert answer.json()["error"]["param"] == each.refused
                continue
            assert answer.status_code == 200, answer.text
            text, extension = read_extension(each.body, answer.text)
            assert text and set(extension["ignored"]) == each.ignored
            assert extension.get("job", "") == each.job
            assert all(extension["ignored"].values()), "each has its reason"
            if each.job:
                assert len(service._generator.requests) == 1, "one plain call"
                assert len(service.index.retriever.queries) == searches
                assert not service.records.find(extension["id"]), "no question, so no record"
            else:
                assert len(service.index.retriever.queries) > searches


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (
            "title",
            "Please generate a concise, 5-word-or-less title for the conversation, with no punctuation.",
        ),
        ("title", "Create a concise, 3-5 word phrase as a title for the chat, with an emoji."),
        (
            "title",
            "Please generate a four to five word title summarizing our conversation without any lead-in.",
        ),
        ("title", "Analyze this conversation and provide:\n1. The detected language\n2. A concise title"),
        ("title", "Write a very short (5 words or less) title for this conversation."),
        ("title", "user: hi\nassistant: hello\n\n请总结上述对话为10个字以内的标题"),
        (
            "title",
            "user: hi\n" * 300 + "Please summarize the above conversation into a title within 10 characters",
        ),
        ("tags", "Generate 2-4 tags for the main themes of this conversation."),
        ("follow_ups", "Suggest three follow-up questions that the user could send next."),
        ("autocomplete", "### Task:\nYou are an autocompletion system. Continue the text in <text>."),
        ("emoji", "Your task is to reflect the speaker's likely facial expression through a fitting emoji."),
        ("image_prompt", "### Task:\nGenerate a detailed prompt for an image generation task."),
        ("summary", "Summarize the discussion briefly in 200 words to use as a prompt for future context."),
        ("summary", "Generate a detailed summary of this conversation. Include its questions."),
        ("other", "### Task:\nRate it.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>"),
    ],
)
def test_jobs_are_recognised_by_their_wording(job, text):
    assert recognise_job([("user", text)]) == job


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"max_tokens": -1, "seed": 7.0}, {"max_tokens"}),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}, {"tool_choice"}),
        ({"modalities": ["text", "audio"], "audio": {"voice": "x"}}, {"modalities", "audio"}),
        ({"stop": ["", "zzz"], "logit_bias": {"7": 1}, "best_of": 2}, {"stop", "logit_bias", "best_of"}),
        ({"stream_options": {"include_usage": True, "chunk_s": 1}}, {"stream_options.chunk_s"}),
    ],
)
async def test_odd_values_of_known_fields_are_passed_over_and_named(fields, ignored):
    async with in_process() as (client, _):
        said = await client.post(CHAT, json={"model": "one_step", "messages": [USER], **fields})
        assert said.status_code == 200 and set(said.json()["corag"]["ignored"]) == ignored


@pytest.mark.parametrize(
    "question",
    [
        "What is the title of the first song on the album that the user made?",
        "Give me a short summary of the title dispute in the Nixon conversation.",
        "Who wrote the short story titled 'Conversation'?",
        "Please provide the title of the message that Lincoln sent in 1861, in two words.",
        "Make a list of the follow-up albums of the band Session.",
        "What message did the user tags create?",
        "生成式人工智能的论文标题是什么",
        "### Task:\nRespond to the user query using the provided context.\n<context>x</context>\n\nWho?",
        "Suggest three questions about Paris.",
        "",
    ],
)
def test_a_question_is_no_job(question):
    assert recognise_job([("user", question)]) == ""


def test_a_system_message_that_wants_titles_makes_no_job_of_a_conversation():
    system = "You help. Provide a short title for the conversation with each answer."
    turns = [("system", system), ("user", "Who?"), ("assistant", "Ada."), ("user", "Where?")]
    assert recognise_job(turns) == ""


async def test_jobs_are_questions_where_an_option_says_so_and_further_ones_can_be_named():
    (title,) = (each for each in BODIES if (each.client, each.kind) == ("Zed", "title"))
    async with in_process(page_jobs=False) as (client, service):
        said = (await client.post(CHAT, json={"model": "one_step", **title.body, "stream": False})).json()
        assert "job" not in said["corag"] and service.index.retriever.queries
    async with in_process(page_job_patterns=["^name this chat"]) as (client, service):
        body = {"model": "one_step", "messages": [{"role": "user", "content": "Name this chat: hello"}]}
        assert (await client.post(CHAT, json=body)).json()["corag"]["job"] == "other"
        assert not service.index.retriever.queries


async def test_a_job_over_a_long_conversation_keeps_its_instruction():
    text = "Generate a concise 3-7 word title for this conversation. " + "word " * 20_000 + "That was all."
    async with in_process() as (client, service):
        body = {"model": "one_step", "messages": [{"role": "user", "content": text}]}
        said = (await client.post(CHAT, json=body)).json()["corag"]
        assert said["job"] == "title" and said["shortened"]["job"]["characters"] == len(text)
        (prompt,) = service._generator.prompts
        assert prompt.startswith("Generate a concise") and prompt.endswith("That was all.")
        assert len(prompt) <= 40_010


@pytest.mark.parametrize(
    ("content", "ignored"),
    [
        ([QUESTION], set()),
        ([{"text": QUESTION}], set()),
        ([{"type": "input_text", "text": QUESTION}], set()),
        ([{"type": "text", "text": QUESTION}, {"type": "file", "file": {"file_data": "JVBERi0="}}], {"file"}),
        ([{"type": "input_audio", "input_audio": {}}, {"type": "text", "text": QUESTION}], {"input_audio"}),
        ([{"type": "text", "text": QUESTION}, 7, {"type": None}], {"(a part)"}),
        ([{"type": "text", "text": QUESTION}, *({"type": "image_url"} for _ in range(500))], None),
    ],
)
async def test_texts_are_read_and_other_parts_are_named(content, ignored):
    async with in_process() as (client, service):
        body = {"model": "one_step", "messages": [{"role": "user", "content": content}]}
        said = (await client.post(CHAT, json=body)).json()
        assert len(service.index.retriever.queries) == 1 and QUESTION in service._generator.prompts[0]
        names = said["corag"]["ignored"]
        if ignored is None:
            assert len(names) < 100 and "(others)" in names
        else:
            assert {name.rpartition("].")[2] for name in names} == ignored


async def test_an_image_before_a_question_does_not_end_a_conversation():
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    async with in_process() as (client, _):
        conversation = [image, {"role": "assistant", "content": "An image."}, USER]
        said = await client.post(CHAT, json={"model": "one_step", "messages": conversation})
        assert set(said.json()["corag"]["ignored"]) == {"messages[0].content[0].image_url"}
        said = await client.post(CHAT, json={"model": "one_step", "messages": [image]})
        assert said.status_code == 400 and "ask in words" in said.json()["error"]["message"]


async def test_messages_under_the_name_of_another_protocol_are_told_where_they_belong():
    async with in_process() as (client, _):
        said = await client.post(CHAT, json={"model": "one_step", "input": [USER]})
        assert said.status_code == 400 and "write 'messages'" in said.json()["error"]["message"]


async def test_a_page_that_sends_the_place_of_the_answer_too_is_answered():
    async with in_process() as (client, service):
        body = {"model": "one_step", "messages": [USER, {"role": "assistant", "content": ""}]}
        assert (await client.post(CHAT, json=body)).status_code == 200
        assert len(service.index.retriever.queries) == 1 and QUESTION in service._generator.prompts[0]
        body["messages"][1]["content"] = "The mayor is"  # to be gone on with, which an answer is not
        assert (await client.post(CHAT, json=body)).status_code == 400


def test_what_a_job_is_takes_no_time_to_tell():
    texts = [
        "generate short a a a max maxx " * 200,
        "summarize chat " * 400,
        "word " * 20_000,
        "标题对话" * 500,
    ]
    begun = time.perf_counter()
    for text in texts:
        recognise_job([("system", text[:1_000]), ("user", text)])
    assert time.perf_counter() - begun < 10, "a pattern that tries all ways takes minutes"


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("//v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/chat/completions", "/v1/chat/completions"),
        ("/openai/deployments/corag/chat/completions", "/v1/chat/completions"),
        ("/completions", "/v1/chat/completions"),
        ("/v1/v1/models", "/v1/models"),
        ("/models", "/v1/models"),
        ("/models/corag", "/v1/models/ID"),
        ("/responses", "chat completions"),
        ("/v1/mcp", "/mcp"),
        ("/api/chat", "Ollama"),
        ("/api/tags", "Ollama"),
        ("/v1/messages", "Anthropic"),
        ("/v1/embeddings", "no embeddings"),
        ("/v1/nothing/<script>", "questions go to /v1/chat/completions"),
    ],
)
async def test_a_wrong_address_is_told_the_right_one(path, right):
    async with in_process() as (client, _):
        url = httpx.URL("http://localhost").copy_with(raw_path=path.encode())
        said = await client.post(url, json={})
        assert said.status_code == 404 and right in said.json()["error"]["message"]
        assert "script" not in said.text


async def test_addresses_can_be_looked_at_before_they_are_used():
    async with in_process() as (client, _):
        for path, ways in ADDRESSES.items():
            if path == "/mcp":  # served without agents here
                continue
            asked = await client.options(path)
            assert asked.status_code == 204 and asked.headers["allow"].startswith(ways)
        assert (await client.head("/v1/models")).status_code == 200
        assert (await client.head("/v1/models/corag")).status_code == 200
        assert (await client.head(CHAT)).status_code == 204
        assert (await client.get("/v1/models/corag")).json()["id"] == "corag"
        assert (await client.get("/v1/models/gpt-5")).status_code == 404
        assert "POST /v1/chat/completions" in (await client.get("/v1")).json()["data"]
        assert (await client.options("/v1/nothing")).status_code == 404


async def test_a_budget_is_the_callers_error_only_if_the_caller_set_it():
    (title,) = (each for each in BODIES if (each.client, each.kind) == ("Dify", "title"))
    body = {
        "model": "one_step",
        **title.body,
    }  # a job is one call, which a budget of one token cannot pay for
    async with in_process(budget=1) as (client, _):
        said = await client.post(CHAT, json=body)
        assert (said.status_code, said.json()["error"]["code"]) == (500, "budget_exhausted")
        said = await client.post(CHAT, json={**body, "corag": {"budget": 50}})
        assert said.status_code == 500, "the service's own holds"
    async with in_process() as (client, _):
        said = await client.post(CHAT, json={**body, "corag": {"budget": 1}})
        assert (said.status_code, said.json()["error"]["param"]) == (400, "corag.budget")


def guide_table() -> str:
    """Return the guide's table of clients: what they send by themselves, and what becomes of it."""
    lines = ["| client | honoured | ignored and listed | refused |", "| --- | --- | --- | --- |"]
    for client in dict.fromkeys(each.client for each in BODIES):
        bodies = [each for each in BODIES if each.client == client]
        answered = [each for each in bodies if not each.refused]
        ignored = {plain_name(name) for each in answered for name in each.ignored}
        sent = {name for each in answered for name in each.body}
        sent -= {"messages", "input", "prompt", "instructions"}
        honoured = {name for name in sent if name not in ignored}
        jobs = [f"its {each.kind}" for each in answered if each.job]
        addresses = [f"`{each.path}`" for each in answered if each.path != CHAT]
        refused = {f"`{each.refused}` ({each.kind})" for each in bodies if each.refused}
        cells = [
            [*dict.fromkeys(addresses), *(f"`{name}`" for name in sorted(honoured)), *jobs],
            sorted(f"`{name}`" if name in sent else name for name in ignored),
            sorted(refused),
        ]
        lines.append(f"| {client} | {' | '.join(', '.join(cell) or '-' for cell in cells)} |")
    return "\n".join(lines)


def plain_name(name: str) -> str:
    """Return a passed over field as the guide has it."""
    if name == "messages.system":
        return "system messages"
    if "image" in name:
        return "images"
    if re.match(r"messages\[|input\[", name):
        return "tool messages" if "reasoning" not in name else "its own reasoning"
    return name.partition(".")[0] if name.startswith("text.") else name


def test_the_guide_has_the_table_of_clients():
    assert guide_table() in GUIDE.read_text()
