"""Encoder-decoder models, such as Flan-T5: a tiny random one, with transformers itself as the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.protocols import GenerateRequest, Generation, Sampling, ScoreRequest
from corag.generation.config import ModelConfig
from corag.generation.encoder_decoder import Windows
from corag.generation.transformers_engine import TransformersGenerator
from tests.fakes import WordRetriever, chat_prompt
from tests.messages import raises_message
from tests.tiny import save_tiny_t5
from training.rows import MakeRowsConfig, make_rows_with

pytestmark = pytest.mark.asyncio
PLACES = ("Norway", "Japan and all the islands that belong to it", "Peru")
# Activations of these random weights are large: 0.001 was seen in float32, 4e-7 of the same in float64.
ROUNDING = 5e-3
PROMPTS = [Prompt.of_text(f"What is the capital of {place}?") for place in PLACES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_t5(tmp_path_factory.mktemp("t5"))


@pytest_asyncio.fixture
async def engine(folder: str) -> AsyncIterator[TransformersGenerator]:
    generator = TransformersGenerator.open(ModelConfig(backend="transformers", name=folder))
    yield generator
    await generator.close()


@pytest.fixture(scope="module")
def oracle(folder: str) -> tuple[Any, Any]:
    """The model and tokenizer as transformers itself opens them."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, AutoTokenizer.from_pretrained(folder)


async def ask(engine: TransformersGenerator, prompt: Prompt, **settings: Any) -> Generation:
    return await engine.generate(GenerateRequest(prompt, Sampling(**({"max_tokens": 12} | settings))))


async def test_greedy_replies_are_those_of_transformers_alone_and_in_a_batch(engine, oracle):
    model, tokenizer = oracle
    replies = await asyncio.gather(*(ask(engine, prompt) for prompt in PROMPTS))
    assert len({reply.completions[0].text for reply in replies}) > 1
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        inputs = tokenizer(prompt.text, return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, 1:].tolist()
        (completion,) = reply.completions
        assert list(completion.token_ids) == ids
        assert completion.text == tokenizer.decode(ids, skip_special_tokens=True)
        assert (reply.usage.prompt, reply.usage.generated) == (inputs["input_ids"].shape[1], len(ids))


async def test_forced_scores_are_those_of_a_forward_pass(engine, oracle):
    model, tokenizer = oracle
    requests = [
        ScoreRequest(prompt, target, end_of_turn=ended)
        for prompt, target, ended in zip(
            PROMPTS, ("Oslo", "What is it?", "Norway is"), (1, 0, 1), strict=True
        )
    ]
    for request, score in zip(requests, await asyncio.gather(*map(engine.score, requests)), strict=True):
        labels = tokenizer(request.target, return_tensors="pt")["input_ids"]  # with the token that ends it
        labels = labels if request.end_of_turn else labels[:, :-1]
        logits = model(**tokenizer(request.prompt.text, return_tensors="pt"), labels=labels).logits
        expected = logits.log_softmax(-1)[0].gather(1, labels[0][:, None])[:, 0]
        assert list(score.token_ids) == labels[0].tolist()
        assert score.token_logprobs == pytest.approx(expected.tolist(), abs=ROUNDING)


async def test_what_is_generated_scores_as_it_was_generated(engine):
    reply = await ask(engine, PROMPTS[1], logprobs=True)
    (completion,) = reply.completions
    score = await engine.score(ScoreRequest(PROMPTS[1], completion.token_ids))
    assert score.token_logprobs == pytest.approx(completion.logprobs, abs=ROUNDING)
    assert "".join(completion.token_texts) == completion.text


async def test_samples_repeat_with_their_seed_and_a_stop_string_ends_a_reply(engine):
    sampled = await ask(engine, PROMPTS[0], temperature=1.0, n=4, seed=5)
    assert len({completion.token_ids for completion in sampled.completions}) > 1
    beside = asyncio.gather(*(ask(engine, prompt) for prompt in PROMPTS))
    again = await ask(engine, PROMPTS[0], temperature=1.0, n=4, seed=5)
    await beside
    assert again.completions == sampled.completions
    text = (await ask(engine, PROMPTS[0])).completions[0].text
    stopped = (await ask(engine, PROMPTS[0], stop=(text[3:5],))).completions[0]
    assert (stopped.text, stopped.finish_reason) == (text[: text.index(text[3:5])], "stop")


async def test_a_prompt_loses_what_may_go_where_the_encoder_has_no_room_whatever_the_reply_takes(folder):
    engine = TransformersGenerator.open(ModelConfig(backend="transformers", name=folder, max_context=40))
    passages = [Segment("Norway is what it is. ", drop=3 - i, kind="passage") for i in range(3)]
    prompt = Prompt((Message("user", (*passages, Segment("What is it?"))),))
    reply = await ask(engine, prompt, max_tokens=40)  # a decoder's window is its own
    assert reply.shortening.dropped and reply.usage.prompt <= 40
    assert len(reply.completions[0].token_ids) <= 40
    with raises_message(RequestRefusedError):
        await ask(engine, prompt, max_tokens=41)
    await engine.close()


async def test_names_of_special_tokens_are_text_and_the_prompt_ends_once(engine):
    prompt = Prompt((Message("user", (Segment("What is </s> of it?"),)),))
    ids, _ = engine._renderer.encode_within(prompt, 512)
    end = engine._renderer.eos
    assert ids[-1] == end and end not in ids[:-1]


async def test_chat_prompts_are_read_as_text(engine):
    reply = await ask(engine, chat_prompt("What is the capital of Norway?"))
    assert reply.completions[0].token_ids


async def test_a_window_that_nobody_chose_is_told(folder, engine):
    assert engine.window == 512
    assert any("model.max_context" in line for line in engine.about)
    wide = TransformersGenerator.open(ModelConfig(backend="transformers", name=folder, max_context=6000))
    assert wide.window == 6000 and not wide.about
    await wide.close()


async def test_positions_that_end_bound_both_windows():
    from transformers import BartConfig

    windows = Windows.of(BartConfig(max_position_embeddings=64), 1000)
    assert (windows.prompt, windows.reply, windows.room(64)) == (64, 64, 64)


async def test_what_such_a_model_cannot_do_is_one_sentence(folder):
    from corag.generation.vllm_engine import VllmGenerator

    with raises_message(ConfigError):
        TransformersGenerator.open(ModelConfig(backend="transformers", name=folder, adapter="default"))
    with raises_message(ConfigError):
        VllmGenerator.open(ModelConfig(name=folder))
    config = MakeRowsConfig(chains=["chains"], out="rows", model=folder, retriever={"index": ["none"]})
    with raises_message(ConfigError):
        await make_rows_with(config, WordRetriever([]))
