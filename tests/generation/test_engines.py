"""vLLM and transformers, asked the same in float32, say the same.

Transformers' forward pass is the oracle.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from corag.core.errors import RequestRefusedError
from corag.core.prompting.prompt import Prompt, Segment
from corag.core.protocols import GenerateRequest, Generation, Generator, Sampling, ScoreRequest
from corag.core.types import TokenUsage
from corag.generation.transformers_engine import TransformersGenerator
from corag.generation.vllm_engine import VllmGenerator
from tests.fakes import chat_prompt

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PLACES = ("France", "Japan", "Peru", "Kenya", "Norway", "Cuba")
PROMPTS = [chat_prompt(f"What is the capital of {place}? Answer in one sentence.") for place in PLACES] + [
    Prompt.of_text(f"The three largest cities of {place} are") for place in PLACES
]
LONG = Prompt.of_text(
    "The river runs from the old town through the valley to the sea, past mills and orchards. " * 12
)


@pytest.fixture
def engines(vllm_generator: VllmGenerator, hf_generator: TransformersGenerator) -> dict[str, Generator]:
    """Both by name.

    (Asked for by name in a test, an engine would have to start inside the running event loop, which fails.)
    """
    return {"vllm_generator": vllm_generator, "hf_generator": hf_generator}


async def ask(generator: Generator, prompt: Prompt, sampling: Sampling, priority: int = 0) -> Generation:
    return await generator.generate(GenerateRequest(prompt, sampling, priority))


async def test_greedy_replies_agree(
    vllm_generator: VllmGenerator, hf_generator: TransformersGenerator
) -> None:
    sampling = Sampling(12, logprobs=True)
    fast, plain = [
        await asyncio.gather(*(ask(generator, prompt, sampling) for prompt in PROMPTS))
        for generator in (vllm_generator, hf_generator)
    ]
    equal = [
        a.completions[0] == replace(b.completions[0], logprobs=a.completions[0].logprobs)
        for a, b in zip(fast, plain, strict=True)
    ]
    assert sum(equal) >= len(PROMPTS) - 1  # two tokens of almost equal probability may change places
    for a, b, same in zip(fast, plain, equal, strict=True):
        for completion in (a.completions[0], b.completions[0]):
            assert "".join(completion.token_texts or ()) == completion.text
            assert (
                len(completion.token_texts or ())
                == len(completion.logprobs or ())
                == len(completion.token_ids)
            )
        if same:
            assert a.completions[0].logprobs == pytest.approx(b.completions[0].logprobs, abs=1e-3)


@pytest.mark.parametrize("name", ["vllm_generator", "hf_generator"])
async def test_a_watched_reply_grows_into_the_same_reply(engines: dict[str, Generator], name: str) -> None:
    for sampling in (Sampling(12), Sampling(12, stop=("\n", " the"))):
        for prompt in PROMPTS[::4]:
            texts: list[str] = []
            asked = GenerateRequest(prompt, sampling, watch=texts.append)
            watched = await engines[name].generate(asked)
            alone = await engines[name].generate(replace(asked, watch=None))
            assert watched.completions == alone.completions
            assert len(texts) >= len(watched.completions[0].token_ids) - 2
            shown = [text for text in texts if not watched.text.startswith(text)]
            assert not shown or sampling.stop, "only the beginning of a stop string is shown too much"


async def test_forced_scores_are_those_of_the_forward_pass(
    vllm_generator: VllmGenerator, hf_generator: TransformersGenerator
) -> None:
    requests = [
        ScoreRequest(prompt, target, end_of_turn)
        for prompt in (*PROMPTS[:3], *PROMPTS[-3:], LONG)
        for target, end_of_turn in ((" Paris", False), ("The answer is a very unlikely 💎 string", True))
    ]
    # Other requests share the batch while the scores are computed, and must not be disturbed.
    alone = await ask(vllm_generator, LONG, Sampling(24))
    beside, *fast = await asyncio.gather(
        ask(vllm_generator, LONG, Sampling(24)), *(vllm_generator.score(request) for request in requests)
    )
    plain = await asyncio.gather(*(hf_generator.score(request) for request in requests))
    slow = await asyncio.gather(*(vllm_generator.score_by_prompt_logprobs(request) for request in requests))
    assert beside.completions == alone.completions
    for forced, oracle, prompt_logprobs in zip(fast, plain, slow, strict=True):
        assert forced.token_ids == oracle.token_ids
        assert forced.token_logprobs == pytest.approx(oracle.token_logprobs, abs=1e-3)
        assert prompt_logprobs.token_logprobs == pytest.approx(oracle.token_logprobs, abs=1e-3)


async def test_a_prompt_that_was_read_before_is_not_computed_again(vllm_generator: VllmGenerator) -> None:
    prompt = Prompt.of_text("A sentence that nobody has read before. " * 20)
    first = await ask(vllm_generator, prompt, Sampling(4))
    again = await ask(vllm_generator, prompt, Sampling(4, n=3, temperature=1.0, seed=1), priority=-5)
    scored = await vllm_generator.score(ScoreRequest(prompt, " The end", priority=7))
    assert first.usage == TokenUsage(1, first.usage.prompt, 4, first.usage.prompt, 4)
    for reply in (again, scored):
        assert reply.usage.prompt == first.usage.prompt
        assert 0 < reply.usage.computed_prompt <= 32
    assert again.usage.generated == sum(len(completion.token_ids) for completion in again.completions)
    assert scored.usage.generated == len(scored.token_ids)


@pytest.mark.parametrize("engine", ["vllm_generator", "hf_generator"])
async def test_samples_differ_from_each_other_and_repeat_with_their_seed(
    engine: str, engines: dict[str, Generator]
) -> None:
    generator = engines[engine]
    sampling = Sampling(12, temperature=1.0, top_p=0.95, n=4, seed=5)
    first = await ask(generator, PROMPTS[-1], sampling)
    assert len({completion.token_ids for completion in first.completions}) > 1
    assert (await ask(generator, PROMPTS[-1], sampling)).completions == first.completions
    assert (await ask(generator, PROMPTS[-1], replace(sampling, seed=6))).completions != first.completions


@pytest.mark.parametrize("engine", ["vllm_generator", "hf_generator"])
async def test_special_tokens_are_spelled_out_on_request(engine: str, engines: dict[str, Generator]) -> None:
    generator = engines[engine]
    start = 1  # <|im_start|>, in the middle of a reply only if it is forced
    forced = Sampling(3, logprobs=True, logit_bias=((start, 1000.0),))
    left_out = (await ask(generator, PROMPTS[0], forced)).completions[0]
    assert (left_out.text, left_out.token_texts) == ("", ("", "", ""))
    spelled = (await ask(generator, PROMPTS[0], replace(forced, special_tokens=True))).completions[0]
    assert (spelled.text, spelled.token_texts) == ("<|im_start|>" * 3, ("<|im_start|>",) * 3)
    assert spelled.logprobs == pytest.approx(left_out.logprobs)
    stopped = (
        await ask(generator, PROMPTS[0], replace(forced, special_tokens=True, stop=("start|><",)))
    ).completions[0]
    assert (stopped.text, stopped.finish_reason) == ("<|im_", "stop")
    ended = (await ask(generator, PROMPTS[0], Sampling(60, special_tokens=True))).completions[0]
    assert ended.finish_reason == "stop" and "<|" not in ended.text, (
        "the end of the turn is no part of the text"
    )


@pytest.mark.parametrize("engine", ["vllm_generator", "hf_generator"])
async def test_biases_and_penalties_change_the_choice_but_not_the_reported_probability(
    engine: str, engines: dict[str, Generator]
) -> None:
    generator = engines[engine]
    free = (await ask(generator, PROMPTS[0], Sampling(1, logprobs=True))).completions[0]
    banned = Sampling(1, logprobs=True, logit_bias=((free.token_ids[0], -100.0),))
    other = (await ask(generator, PROMPTS[0], banned)).completions[0]
    assert other.token_ids != free.token_ids
    assert other.logprobs == pytest.approx(
        (await generator.score(ScoreRequest(PROMPTS[0], other.token_ids))).token_logprobs, abs=1e-3
    )
    penalised = await ask(generator, LONG, Sampling(8, repetition_penalty=1.8))
    assert penalised.text not in LONG.text  # left alone, it would go on repeating the prompt
    assert (await ask(generator, LONG, Sampling(8))).text in LONG.text


@pytest.mark.parametrize("engine", ["vllm_generator", "hf_generator"])
async def test_what_can_never_fit_is_refused_and_what_can_is_shortened(
    engine: str, engines: dict[str, Generator]
) -> None:
    generator = engines[engine]
    with pytest.raises(RequestRefusedError):
        await generator.score(ScoreRequest(PROMPTS[0], (10,) * 2048))
    with pytest.raises(RequestRefusedError):
        await generator.score(ScoreRequest(PROMPTS[0], ""))
    with pytest.raises(RequestRefusedError):
        await ask(generator, PROMPTS[0], Sampling(2048))
    passages = [Segment("A long passage about nothing. " * 60, drop=i, kind="passage") for i in range(8)]
    reply = await ask(
        generator, chat_prompt([*passages, Segment("Say yes.")]), Sampling(1500, stop=("e", "a", "o"))
    )
    assert reply.shortening.dropped == (("passage", 7),)
    assert reply.usage.prompt < 2048 - 1500


async def test_seeded_samples_of_prompts_that_fill_a_batch_together(vllm_generator: VllmGenerator) -> None:
    # Prompts longer in sum than vLLM reads in one step were read in chunks, which ended the engine on a CPU.
    prompts = [Prompt.of_text(f"{number} " + "over the hills and far away " * 110) for number in range(6)]
    asked = [
        ask(vllm_generator, prompt, Sampling(2, 0.7, seed=number)) for number, prompt in enumerate(prompts)
    ]
    replies = await asyncio.gather(*asked)
    assert all(reply.usage.generated == 2 for reply in replies)
    assert sum(reply.usage.prompt for reply in replies) > 2048
