"""Servers that want to be asked otherwise are asked so, and it is remembered."""

import asyncio
import json

import httpx
import pytest

from corag.core.errors import RequestRefusedError
from corag.core.protocols import GenerateRequest, Sampling
from corag.generation.config import ModelConfig
from corag.generation.http import endpoints
from corag.generation.http.endpoints import Endpoint, Endpoints
from corag.generation.http.engine import HttpGenerator
from corag.generation.http.wording import Wording
from tests.fakes import chat_prompt
from tests.messages import raises_message

URL = "http://model.example:1"
BODY = {"max_tokens": 5, "temperature": 0.0, "top_p": 1.0, "top_k": -1, "stop": ["x"], "n": 2, "messages": []}
OTHER_LIMIT = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
)


def refused(message, param=None, code=None):
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


@pytest.mark.parametrize(
    ("status", "error", "gone"),
    [
        (400, refused("'temperature' does not support 0 with this model.", "temperature"), "temperature"),
        (400, {"error": {"message": "gpt-5 models don't support temperature=0."}}, "temperature"),
        (400, {"error": "`temperature` is deprecated for this model."}, "temperature"),
        (400, refused("temperature and top_p cannot both be specified for this model."), "top_p"),
        (422, {"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs"}]}, "top_k"),
        (400, refused("Unrecognized request argument supplied: top_k", None, None), "top_k"),
        (400, refused("property 'stop' is unsupported"), "stop"),
        (400, "top_p is not allowed here", "top_p"),
        # Neither a value out of bounds nor what a method reads may go, and other statuses mean other things.
        (400, refused("Invalid 'temperature': above maximum value.", "temperature", "above_max"), ""),
        (400, refused("Unsupported parameter: 'n'", "n", "unsupported_parameter"), ""),
        (400, refused("This model's maximum context length is 10 tokens.", "messages"), ""),
        (401, refused("temperature is not supported", "temperature"), ""),
    ],
)  # fmt: skip
def test_what_a_refusal_names_is_left_out_if_it_may_be(status, error, gone, capsys):
    wording = Wording()
    assert wording.learn(status, error, BODY, URL) is bool(gone)
    assert wording.adapt(BODY) == {name: value for name, value in BODY.items() if name != gone}
    assert (f"takes no {gone}" in capsys.readouterr().err) is bool(gone)
    assert not wording.learn(status, error, BODY, URL), "once for each"


def test_the_newer_name_of_a_limit_is_taken_from_the_refusal():
    wording = Wording()
    assert wording.learn(400, refused(OTHER_LIMIT, "max_tokens", "unsupported_parameter"), BODY, URL)
    assert wording.adapt(BODY)["max_completion_tokens"] == 5 and "max_tokens" not in wording.adapt(BODY)
    other = Wording()
    assert not other.learn(400, refused("max_tokens is too large: at most 3 are supported."), BODY, URL)


class NewerModel:
    """A server of a model that takes max_completion_tokens and no temperature, as OpenAI's newer ones."""

    def __init__(self, strict=("max_tokens", "temperature")):
        self.strict, self.bodies, self.refusals = strict, [], 0

    def client(self):
        return httpx.AsyncClient(transport=httpx.MockTransport(self.answer))

    async def answer(self, request):
        if request.method == "GET":
            found = request.url.path == "/v1/models"
            return httpx.Response(200 if found else 404, json={"data": [{"id": "newer"}]})
        await asyncio.sleep(0)
        body = json.loads(request.content)
        if request.url.path != "/v1/chat/completions":
            return httpx.Response(404, json=refused("no such route"))
        self.bodies.append(body)
        wrong = next((name for name in self.strict if name in body), "")
        if wrong:
            self.refusals += 1
            text = OTHER_LIMIT if wrong == "max_tokens" else f"'{wrong}' does not support 0 with this model."
            return httpx.Response(400, json=refused(text, wrong, "unsupported_value"))
        if body.get("max_completion_tokens", 1_000) < 16:
            text = "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens."  # noqa: E501
            return httpx.Response(400, json=refused(text))
        if "logprobs" in body or "top_k" in body:
            return httpx.Response(400, json=refused("Unrecognized request argument supplied: logprobs"))
        choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
        return httpx.Response(200, json={"choices": [choice], "usage": {"prompt_tokens": 3}})


async def test_requests_in_flight_together_all_get_their_reply():
    server = NewerModel()
    pool = Endpoints(server.client(), [Endpoint(URL, "newer", True)], retries=0)
    body = {"max_tokens": 50, "temperature": 0, "messages": []}
    await asyncio.gather(
        *(pool.request("/v1/chat/completions", lambda _: body, lambda reply: reply, "") for _ in range(8))
    )
    assert server.refusals <= 16
    server.refusals = 0
    await pool.request("/v1/chat/completions", lambda _: body, lambda reply: reply, "")
    assert server.refusals == 0, "it is remembered"
    await pool.close()


async def test_what_may_not_go_is_refused_as_before():
    server = NewerModel(strict=("n",))
    pool = Endpoints(server.client(), [Endpoint(URL, "newer", True)], retries=0)
    with raises_message(RequestRefusedError):
        await pool.request("/v1/chat/completions", lambda _: {"n": 2}, lambda reply: reply, "")
    await pool.close()


async def test_a_newer_model_is_opened_and_asked_and_the_line_on_it_says_what_it_takes_not(monkeypatch):
    server = NewerModel()
    monkeypatch.setattr("corag.generation.http.engine.connect", lambda *_: server.client())
    config = ModelConfig(backend="openai", name="newer", urls=(URL,), retries=0)
    generator = await HttpGenerator.open(config, tokenizer="")
    assert "it takes no temperature, so its own holds" in generator.about[0]
    assert generator.fingerprint.endswith(":without=temperature")
    server.refusals = 0
    request = GenerateRequest(chat_prompt("Is it?"), Sampling(40, stop=("!",)))
    assert (await generator.generate(request)).text == "yes"
    assert server.refusals == 0
    assert server.bodies[-1]["max_completion_tokens"] == 40 and "temperature" not in server.bodies[-1]
    await generator.close()


async def test_an_error_names_the_proxy(monkeypatch):
    for name in ("http_proxy", "all_proxy", "no_proxy", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://bob:secret@127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(endpoints, "_FIRST_PAUSE_S", 0.0)
    client = endpoints.connect(ModelConfig(backend="openai", urls=(URL,)), 8)
    pool = Endpoints(client, [Endpoint(URL, "newer", True)], retries=0)
    with pytest.raises(Exception, match=r"through the proxy http://127\.0\.0\.1:9 \(HTTP_PROXY\)") as error:
        await pool.request("/v1/chat/completions", lambda _: {}, lambda reply: reply, "")
    assert "secret" not in str(error.value)
    await pool.close()
