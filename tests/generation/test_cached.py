"""Identical repeatable requests are joined and remembered, greedy ones and samples with a seed.

Nothing else is.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from corag.chains.config import CoRAGConfig
from corag.chains.method import corag
from corag.core.errors import BackendError
from corag.core.prompting.prompt import Prompt
from corag.core.protocols import GenerateRequest, Generator, Sampling, ScoreRequest
from corag.core.seeds import derive_seed
from corag.core.tools import GenerateStep, Tools
from corag.core.types import Answer, Question
from corag.generation.cached import CachedGenerator
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, chat_prompt, kind, passage

REQUEST = GenerateRequest(Prompt.of_text("who wrote it?"), Sampling(5))
WARM = replace(REQUEST, sampling=Sampling(5, temperature=0.7, seed=1))


async def test_identical_requests_in_flight_are_joined_and_finished_ones_remembered() -> None:
    inner = ScriptedGenerator(["Ada Lovelace"], pause=lambda _: asyncio.sleep(0.01))
    cached = CachedGenerator(inner)
    same = replace(REQUEST, priority=3, affinity="q7", sampling=Sampling(5, seed=9))
    first, joined = await asyncio.gather(cached.generate(REQUEST), cached.generate(same))
    later = await cached.generate(REQUEST)
    assert len(inner.requests) == 1
    assert first.completions == joined.completions == later.completions
    assert first.usage.computed == first.usage.total > 0
    assert joined.usage == later.usage == first.usage.remembered()


async def test_samples_with_a_seed_are_joined_and_remembered() -> None:
    inner = ScriptedGenerator(
        lambda request: f"reply {len(inner.requests)}", pause=lambda _: asyncio.sleep(0.01)
    )
    cached = CachedGenerator(inner)
    first, joined = await asyncio.gather(
        cached.generate(WARM), cached.generate(replace(WARM, priority=-2, affinity="q7"))
    )
    later = await cached.generate(WARM)
    assert len(inner.requests) == 1
    assert first.text == joined.text == later.text == "reply 1"
    assert joined.usage == later.usage == first.usage.remembered()
    assert first.usage.computed == first.usage.total == later.usage.total > later.usage.computed == 0


async def test_different_requests_and_samples_without_a_seed_are_asked_each_time() -> None:
    inner = ScriptedGenerator(lambda request: "reply")
    cached = CachedGenerator(inner)
    seedless = replace(WARM, sampling=replace(WARM.sampling, seed=None))
    for request in (
        seedless,
        seedless,
        WARM,
        replace(WARM, sampling=replace(WARM.sampling, seed=2)),
        replace(WARM, sampling=replace(WARM.sampling, temperature=0.8)),
        replace(WARM, sampling=replace(WARM.sampling, n=2)),
        REQUEST,
        replace(REQUEST, sampling=Sampling(6)),
        replace(REQUEST, prompt=chat_prompt("who wrote it?")),
    ):
        await cached.generate(request)
    assert len(inner.requests) == 9


async def test_samples_do_not_push_out_greedy_replies() -> None:
    inner = ScriptedGenerator(lambda request: "reply")
    cached = CachedGenerator(inner, capacity=2)
    samples = [replace(WARM, sampling=replace(WARM.sampling, seed=seed)) for seed in (1, 2, 3)]
    for request in (REQUEST, *samples, REQUEST, samples[2], samples[0]):
        await cached.generate(request)
    assert [request.sampling.seed for request in inner.requests] == [None, 1, 2, 3, 1], (
        "of samples, the oldest is gone"
    )


WORLD = [passage(name, f"{name} lies by the sea.") for name in ("Oslo", "Bergen", "Narvik", "Bodo", "Molde")]
QUESTION = Question("q1", "Where is Oslo?", ("Norway",))


def wandering(request: GenerateRequest) -> str:
    """Sub-queries by prompt and seed, as a sampling model gives them; answers by prompt."""
    place = derive_seed(request.prompt.text, request.sampling.seed or 0)
    names = {
        "NEXT": f"Where does {WORLD[place % 5].title} lie, {place}?",
        "ANSWER": f"by sea {place}",
        "FINAL": "Norway",
    }
    return names[kind(request)]


def by_length(request: ScoreRequest) -> float:
    return -float(len(request.prompt.text) % 7)


async def answered(cached: Generator, **options: object) -> tuple[Answer, Tools]:
    tools = Tools(QUESTION, cached, WordRetriever(WORLD), seed=5)
    few = {"strategy": "best_of_n", "passages_per_hop": 1, "context_passages": 1}
    return await corag(QUESTION, tools, CoRAGConfig(**(PROMPTS | few | options))), tools


def sampled(tools: Tools) -> list[str]:
    """Places of the sub-queries that were computed for this question."""
    steps = [step for step in tools.steps if isinstance(step, GenerateStep)]
    return sorted(step.path for step in steps if step.role == "sub_query" and step.usage.computed)


async def test_eight_chains_ask_for_the_four_that_are_new() -> None:
    inner = ScriptedGenerator(wandering, log_likelihood=by_length)
    cached = CachedGenerator(inner)
    await answered(cached, chains=4, max_hops=3)
    inner.requests.clear()
    inner.scored.clear()
    nested, tools = await answered(cached, chains=8, max_hops=3)
    assert sampled(tools) == [f"chain {number}/hop {hop}" for number in (5, 6, 7, 8) for hop in (1, 2, 3)]
    assert sum(kind(request) == "NEXT" for request in inner.requests) == 12 and len(inner.scored) == 4
    fresh = CachedGenerator(ScriptedGenerator(wandering, log_likelihood=by_length))
    alone, spent = await answered(fresh, chains=8, max_hops=3)
    assert nested == alone and tools.spent.total == spent.spent.total, (
        "shared work changes neither answers nor counts"
    )
    assert tools.spent.computed < spent.spent.computed


async def test_within_a_run_memory_changes_no_sample() -> None:
    results = [
        await answered(
            CachedGenerator(ScriptedGenerator(wandering), capacity), chains=4, max_hops=4, strategy=strategy
        )
        for strategy in ("best_of_n", "tree")
        for capacity in (0, 1000)
    ]
    bare = await answered(ScriptedGenerator(wandering), chains=4, max_hops=4)
    assert results[0][0] == results[1][0] == bare[0] and results[2][0] == results[3][0]
    assert len(sampled(results[1][1])) == 16, "no sample of a run is asked for twice"


async def test_failures_reach_everyone_who_joined_and_are_not_remembered() -> None:
    failing = True

    async def pause(_: GenerateRequest) -> None:
        await asyncio.sleep(0)
        if failing:
            raise BackendError("the engine is gone")

    cached = CachedGenerator(ScriptedGenerator(lambda request: "reply", pause))
    results = await asyncio.gather(cached.generate(REQUEST), cached.generate(REQUEST), return_exceptions=True)
    assert [type(result) for result in results] == [BackendError, BackendError]
    failing = False
    assert (await cached.generate(REQUEST)).text == "reply"


async def test_a_caller_who_gives_up_does_not_take_the_reply_from_those_who_joined() -> None:
    cached = CachedGenerator(ScriptedGenerator(lambda request: "reply", lambda _: asyncio.sleep(0.02)))
    impatient = asyncio.create_task(cached.generate(REQUEST))
    joined = asyncio.create_task(cached.generate(REQUEST))
    await asyncio.sleep(0.005)
    impatient.cancel()
    assert (await joined).text == "reply"
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_scores_are_remembered() -> None:
    cached = CachedGenerator(ScriptedGenerator([]))
    request = ScoreRequest(Prompt.of_text("who?"), "Ada Lovelace")
    first, second = await cached.score(request), await cached.score(replace(request, priority=1))
    assert second.token_logprobs == first.token_logprobs and second.usage == first.usage.remembered()
    assert (await cached.score(replace(request, end_of_turn=True))).usage.computed > 0
