"""Identical temperature-0 requests are joined and remembered; nothing else is."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from core.errors import BackendError
from core.prompt import Prompt
from core.protocols import GenerateRequest, Sampling, ScoreRequest
from generation.memo import RememberingGenerator
from tests.fakes import ScriptedGenerator

REQUEST = GenerateRequest(Prompt.of_text("who wrote it?"), Sampling(5))


async def test_identical_requests_in_flight_are_joined_and_finished_ones_remembered() -> None:
    inner = ScriptedGenerator(["Ada Lovelace"], pause=lambda _: asyncio.sleep(0.01))
    memo = RememberingGenerator(inner)
    same = replace(REQUEST, priority=3, affinity="q7", sampling=Sampling(5, seed=9))
    first, joined = await asyncio.gather(memo.generate(REQUEST), memo.generate(same))
    later = await memo.generate(REQUEST)
    assert len(inner.requests) == 1
    assert first.completions == joined.completions == later.completions
    assert first.usage.computed == first.usage.total > 0
    assert joined.usage == later.usage == first.usage.remembered()


async def test_warm_requests_and_different_requests_are_asked_each_time() -> None:
    inner = ScriptedGenerator(lambda request: "reply")
    memo = RememberingGenerator(inner)
    warm = replace(REQUEST, sampling=Sampling(5, temperature=0.7, seed=1))
    for request in (
        warm,
        warm,
        REQUEST,
        replace(REQUEST, sampling=Sampling(6)),
        replace(REQUEST, prompt=Prompt.of_user("who wrote it?")),
    ):
        await memo.generate(request)
    assert len(inner.requests) == 5


async def test_failures_reach_everyone_who_joined_and_are_not_remembered() -> None:
    failing = True

    async def pause(_: GenerateRequest) -> None:
        await asyncio.sleep(0)
        if failing:
            raise BackendError("the engine is gone")

    memo = RememberingGenerator(ScriptedGenerator(lambda request: "reply", pause))
    results = await asyncio.gather(memo.generate(REQUEST), memo.generate(REQUEST), return_exceptions=True)
    assert [type(result) for result in results] == [BackendError, BackendError]
    failing = False
    assert (await memo.generate(REQUEST)).text == "reply"


async def test_a_caller_who_gives_up_does_not_take_the_reply_from_those_who_joined() -> None:
    memo = RememberingGenerator(ScriptedGenerator(lambda request: "reply", lambda _: asyncio.sleep(0.02)))
    impatient = asyncio.create_task(memo.generate(REQUEST))
    joined = asyncio.create_task(memo.generate(REQUEST))
    await asyncio.sleep(0.005)
    impatient.cancel()
    assert (await joined).text == "reply"
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_the_least_recently_used_reply_is_forgotten_first() -> None:
    inner = ScriptedGenerator(lambda request: "reply")
    memo = RememberingGenerator(inner, capacity=2)
    a, b, c = (GenerateRequest(Prompt.of_text(text), Sampling(5)) for text in "abc")
    for request in (a, b, a, c, a, b):
        await memo.generate(request)
    assert [request.prompt.text for request in inner.requests] == ["a", "b", "c", "b"]


async def test_scores_are_remembered() -> None:
    memo = RememberingGenerator(ScriptedGenerator([]))
    request = ScoreRequest(Prompt.of_text("who?"), "Ada Lovelace")
    first, second = await memo.score(request), await memo.score(replace(request, priority=1))
    assert second.token_logprobs == first.token_logprobs and second.usage == first.usage.remembered()
    assert (await memo.score(replace(request, end_of_turn=True))).usage.computed > 0
