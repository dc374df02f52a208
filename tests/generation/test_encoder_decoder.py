"""Encoder-decoder models, such as Flan-T5: a tiny random one, with transformers itself as the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from corag.core.errors import RequestRefusedError
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.protocols import Ability, GenerateRequest, Generation, Sampling, ScoreRequest
from corag.generation.config import ModelConfig
from corag.generation.transformers_engine import TransformersGenerator
from tests.messages import raises_message
from tests.tiny import save_tiny_t5

pytestmark = pytest.mark.asyncio
PLACES = ("Norway", "Japan and all the islands that belong to it", "Peru")
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


async def test_a_stop_string_ends_a_reply(engine):
    text = (await ask(engine, PROMPTS[0])).completions[0].text
    stopped = (await ask(engine, PROMPTS[0], stop=(text[3:5],))).completions[0]
    assert (stopped.text, stopped.finish_reason) == (text[: text.index(text[3:5])], "stop")


async def test_a_shorter_limit_beside_a_longer_one_holds(engine):
    short, long = await asyncio.gather(ask(engine, PROMPTS[0], max_tokens=3), ask(engine, PROMPTS[1]))
    assert short.completions == (await ask(engine, PROMPTS[0], max_tokens=3)).completions
    assert len(short.completions[0].token_ids) <= 3 and long.completions[0].token_ids


@pytest.mark.parametrize("settings", [{"temperature": 1.0}, {"logprobs": True}], ids=["sample", "logprobs"])
async def test_what_is_no_greedy_reply_is_refused(engine, settings):
    assert {Ability.TEMPERATURE, Ability.LOGPROBS, Ability.SCORES} <= set(engine.lacks)
    with raises_message(RequestRefusedError):
        await ask(engine, PROMPTS[0], **settings)
    with pytest.raises(RequestRefusedError):
        await engine.score(ScoreRequest(PROMPTS[0], "Oslo"))


async def test_a_prompt_loses_what_may_go_where_the_encoder_has_no_room_whatever_the_reply_takes(folder):
    engine = TransformersGenerator.open(ModelConfig(backend="transformers", name=folder, max_context=40))
    passages = [Segment("Norway is what it is. ", drop=3 - i, kind="passage") for i in range(3)]
    prompt = Prompt((Message("user", (*passages, Segment("What is it?"))),))
    reply = await ask(engine, prompt, max_tokens=40)  # a decoder's window is its own
    assert reply.shortening.dropped and reply.usage.prompt <= 40
    assert len(reply.completions[0].token_ids) <= 40
    await engine.close()


async def test_names_of_special_tokens_are_text_and_the_prompt_ends_once(engine):
    prompt = Prompt((Message("user", (Segment("What is </s> of it?"),)),))
    ids, _ = engine._renderer.encode_within(prompt, 512)
    end = engine._renderer.eos
    assert ids[-1] == end and end not in ids[:-1]


async def test_a_window_that_nobody_chose_is_told(folder, engine):
    assert engine.window == 512
    assert any("model.max_context" in line for line in engine.about)
    wide = TransformersGenerator.open(ModelConfig(backend="transformers", name=folder, max_context=6000))
    assert wide.window == 6000 and not wide.about
    await wide.close()
