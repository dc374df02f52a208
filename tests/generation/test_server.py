"""Running servers: load, affinity, retries and refusals against a stand-in.

Scores and replies against a real vLLM server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from corag.core.errors import BackendError, ConfigError, RequestRefusedError
from corag.core.prompting.prompt import Prompt
from corag.core.protocols import GenerateRequest, Sampling, ScoreRequest
from corag.generation.config import ModelConfig
from corag.generation.http.engine import HttpGenerator
from corag.generation.http.profiles import VLLM
from corag.generation.transformers_engine import TransformersGenerator
from tests.fakes import chat_prompt
from tests.generation.families import FAMILIES
from tests.generation.standing_in import FAULTS, HANGS_S, Served, now_and_then
from tests.messages import raises_message


class StandIn(Served):
    """A server that speaks vLLM's protocol, forces nothing, and fails as told."""

    def __init__(self, models: tuple[str, ...] = ("only",)) -> None:
        self.models = models
        self.status: list[int] = []  # what the next completions are answered with instead
        self.logprobs: dict[str, Any] = {}  # what takes the place of its log-probabilities
        self.bodies: list[dict[str, Any]] = []
        super().__init__(
            [Route("/v1/models", self._list), Route("/v1/completions", self._complete, methods=["POST"])]
        )

    async def _list(self, _: Request) -> Response:
        shown = [{"id": name, "root": name, "max_model_len": 512} for name in self.models]
        return JSONResponse({"data": shown})

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        if body.get("priority"):
            return JSONResponse({"error": "priority scheduling is not enabled"}, 400)
        self.bodies.append(body)
        if self.status:
            return JSONResponse({"error": "as told"}, self.status.pop(0))
        choice: dict[str, Any] = {
            "index": 0,
            "text": " yes",
            "token_ids": [1] * body["max_tokens"],
            "finish_reason": "length",
        }
        echoed = [None] + [-token / 1000 for token in body["prompt"][1:]] if body.get("echo") else []
        choice["logprobs"] = {"token_logprobs": [*echoed, *[-0.5] * body["max_tokens"]]} | self.logprobs
        return JSONResponse({"choices": [choice], "usage": {}})


async def open_server(config: ModelConfig) -> HttpGenerator:
    """Open what ``backend: server`` opens."""
    return await HttpGenerator.open(config, tokenizer=config.name, profile=VLLM)


@asynccontextmanager
async def opened(
    *servers: StandIn, retries: int = 2, adapter: str = "", timeout_s: float = 600.0
) -> AsyncIterator[HttpGenerator]:
    urls = tuple(server.url for server in servers)
    generator = await open_server(
        ModelConfig(backend="server", urls=urls, retries=retries, adapter=adapter, timeout_s=timeout_s)
    )
    for server in servers:
        server.bodies.clear()
    yield generator
    await generator.close()


def request(affinity: str = "", text: str = "Is it so?") -> GenerateRequest:
    return GenerateRequest(Prompt.of_text(text), Sampling(1), priority=3, affinity=affinity)


async def test_prompts_that_become_tokens_at_the_same_time_are_the_same() -> None:
    """Tokenizers that threads share must not mix them up."""
    texts = [f"Question {i}: {'where does the river end? ' * (i % 9)}" for i in range(64)]
    with StandIn() as a, StandIn() as b:
        async with opened(a, b) as generator:
            assert generator._renderer is not None
            expected = [generator._renderer.encode(Prompt.of_text(text)) for text in texts]
            await asyncio.gather(*(generator.generate(request(text, text)) for text in texts))
    assert sorted(body["prompt"] for body in a.bodies + b.bodies) == sorted(expected)


@pytest.mark.parametrize(("name", "stop"), [("gemma-3", None), ("Alpaca", ["\n\n### Instruction:"])])
async def test_a_server_ends_a_reply_where_the_chat_template_does(
    name: str, stop: list[str] | None, tmp_path: Path
) -> None:
    """Though the configuration of the model that it serves may name another token."""
    family = FAMILIES[name]
    with StandIn() as a:
        config = ModelConfig(backend="server", urls=(a.url,), name=family.save(tmp_path))
        generator = await open_server(config)
        a.bodies.clear()
        await generator.generate(GenerateRequest(chat_prompt("Is it so?"), Sampling(1)))
        await generator.close()
    (body,) = a.bodies
    ends = {family.eos} | ({family.end} if stop is None else set())
    assert set(family.tokenizer().convert_ids_to_tokens(body["stop_token_ids"])) == ends
    assert body.get("stop") == stop


@pytest.mark.slow
async def test_with_faults_of_every_kind_now_and_then_each_request_is_answered(hurried: None) -> None:
    met, faults = now_and_then(0.15, seed=0)
    with StandIn() as a, StandIn() as b:
        a.faults = b.faults = faults
        async with opened(a, b, retries=7, timeout_s=HANGS_S / 2) as generator:
            needed, met_before = a.requests + b.requests, len(met)
            while len(met) < 60 or set(met) != set(FAULTS):
                asked = [replace(request(str(i)), sampling=Sampling(3, logprobs=True)) for i in range(50)]
                replies = await asyncio.gather(*map(generator.generate, asked))
                assert {reply.text for reply in replies} == {" yes"}
                scoring = ScoreRequest(Prompt.of_text("Is it so?"), (40, 50))
                scores = await asyncio.gather(*(generator.score(scoring) for _ in range(20)))
                assert {score.token_logprobs for score in scores} == {(-0.04, -0.05)}
                needed += len(asked) + len(scores)
            # On a busy machine requests are given up, too, that were only late, or had not yet been heard.
            assert generator.retried >= a.requests + b.requests - needed >= len(met) - met_before > 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_server_that_fails_for_good_is_given_up_with_one_sentence(hurried: None, fault: str) -> None:
    options = {"retries": 1, "timeout_s": HANGS_S / 2}
    with StandIn() as a:
        a.faults = lambda: fault
        with pytest.raises(BackendError, match=rf"{a.url}/v1/models gave no usable reply in 2 attempts"):
            await open_server(ModelConfig(backend="server", urls=(a.url,), **options))  # type: ignore[arg-type]
        first = iter([""])  # it tells its models, and fails from then on
        a.faults = lambda: next(first, fault)
        with pytest.raises(BackendError, match=rf"{a.url}/.*gave no usable reply in 2 attempts"):
            await open_server(ModelConfig(backend="server", urls=(a.url,), **options))  # type: ignore[arg-type]
        a.faults = lambda: ""
        async with opened(a, retries=1, timeout_s=HANGS_S / 2) as generator:
            a.faults = lambda: fault
            for ask in (
                generator.generate(replace(request(), sampling=Sampling(3, logprobs=True))),
                generator.score(ScoreRequest(Prompt.of_text("Is it so?"), (40, 50))),
            ):
                with pytest.raises(
                    BackendError, match=rf"{a.url}/v1/completions gave no .* in 2 attempts"
                ) as told:
                    await ask
                assert str(told.value).isprintable()  # one line, nothing that a terminal obeys
            assert generator.retried == 2


@pytest.mark.parametrize(
    "logprobs",
    [
        {"token_logprobs": [0.0, 0.0]},  # processed_logprobs: the token that was pushed up is certain
        {"token_logprobs": [112.0, 9.0]},  # processed_logits
        {"top_logprobs": [{"a": 14.0, "b": 13.5}]},  # raw_logits
    ],
)
async def test_a_server_whose_log_probabilities_are_not_the_models_is_refused(
    logprobs: dict[str, Any],
) -> None:
    with StandIn() as a:
        a.logprobs = logprobs
        with raises_message(ConfigError):
            await open_server(ModelConfig(backend="server", urls=(a.url,)))


async def test_servers_that_differ_are_refused_with_what_each_is() -> None:
    def options(*servers: StandIn) -> ModelConfig:
        return ModelConfig(backend="server", urls=tuple(server.url for server in servers))

    with StandIn(models=("llama",)) as a, StandIn(models=("qwen",)) as b, StandIn(models=("llama",)) as again:
        with pytest.raises(ConfigError, match=f"{a.url}/v1 .* serves 'llama'.*{b.url}/v1 .* serves 'qwen'"):
            await open_server(options(a, b))
        async with opened(a, again):
            pass


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_a_real_server_scores_forced_and_by_echo_as_transformers_does(
    vllm_server: str, hf_generator: TransformersGenerator
) -> None:
    generator = await open_server(ModelConfig(backend="server", urls=(vllm_server,)))
    assert generator._served.forced and generator._served.priorities
    # The server is shared with other tests: none of them may have warmed its cache with this prompt.
    prompt = chat_prompt("A brook runs through the meadows to the lake. " * 12 + "Where does it run to?")
    asked = GenerateRequest(prompt, Sampling(6, logprobs=True), priority=2)
    reply, oracle_reply = await generator.generate(asked), await hf_generator.generate(asked)
    assert reply.completions[0].token_ids == oracle_reply.completions[0].token_ids
    assert reply.text == oracle_reply.text
    assert reply.completions[0].token_texts == oracle_reply.completions[0].token_texts
    spelling = replace(asked, sampling=Sampling(2, logit_bias=((1, 1000.0),), special_tokens=True))
    assert (await generator.generate(spelling)).text == "<|im_start|>" * 2
    scoring = ScoreRequest(prompt, "to the sea", end_of_turn=True, priority=5)
    oracle = await hf_generator.score(scoring)
    forced = await generator.score(scoring)
    generator._served = replace(generator._served, forced=False)
    fallback = await generator.score(scoring)
    for score in (forced, fallback):
        assert score.token_ids == oracle.token_ids
        assert score.token_logprobs == pytest.approx(oracle.token_logprobs, abs=1e-3)
    assert reply.usage.cached == 0 and 0 < forced.usage.computed_prompt <= 32
    with pytest.raises(RequestRefusedError):
        await generator.generate(GenerateRequest(prompt, Sampling(5000)))
    samples = await generator.generate(GenerateRequest(prompt, Sampling(6, temperature=1.0, n=3, seed=4)))
    assert len(samples.completions) == 3 and len({sample.token_ids for sample in samples.completions}) > 1
    await generator.close()
