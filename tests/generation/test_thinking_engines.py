"""A scripted model that thinks, in every engine: the same replies, and thoughts in the ledger alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corag.chains.config import CoRAGConfig
from corag.chains.method import corag
from corag.core.errors import BudgetExhaustedError
from corag.core.prompting.prompt import ALOUD
from corag.core.protocols import GenerateRequest, Generation, Generator, Sampling, ScoreRequest
from corag.core.tools import GenerateStep, Tools
from corag.core.types import MEASURING, THINKING, Passage, Question, TokenUsage, sum_usage
from corag.generation.config import ModelConfig
from corag.generation.open import open_generator
from corag.generation.thinking_generator import ThinkingGenerator, thinking_budget
from corag.generation.vllm_engine import VllmGenerator
from tests.fakes import WordRetriever, chat_prompt
from tests.messages import raises_message
from tests.thinking_model import (
    CHAIN,
    ENDLESS,
    HYBRID,
    OPENS,
    REPLY,
    SILENT,
    SUB_QUERY,
    THOUGHT,
    ThinkingServer,
    save_thinking_model,
)

# A thought meets both stop strings, and is longer than the reply may be.
SAMPLING = Sampling(3, logprobs=True, stop=(".", "\n"))


async def open_scripted(
    folder: Path, template: str, chain: dict[str, str] = CHAIN, **options: Any
) -> Generator:
    model = save_thinking_model(folder, template, chain)
    return await open_generator(ModelConfig(backend="transformers", name=model, dtype="float32", **options))


async def ask(generator: Generator, prefix: str = "", sampling: Sampling = SAMPLING) -> Generation:
    return await generator.generate(GenerateRequest(chat_prompt("Who?", prefix=prefix), sampling))


async def check_replies(generator: Generator, thought: str, *, cut: bool, tokens: int) -> None:
    """Check what does not depend on the engine. ``tokens``: of the thought."""
    for prefix, text in (("", REPLY), ("Answer:", f" {REPLY}")):
        reply = await ask(generator, prefix)
        (completion,) = reply.completions
        assert (completion.text, completion.finish_reason) == (text, "stop")
        assert completion.token_texts is not None and "".join(completion.token_texts) == text
        assert completion.logprobs == pytest.approx([0.0, 0.0], abs=1e-3)
        assert (reply.thoughts, reply.thoughts_cut) == ((thought,), int(cut))
        assert (reply.usage.calls, reply.usage.generated) == (1, 2)
        assert reply.thinking.generated == tokens and not reply.thinking.prompt
        score = await generator.score(
            ScoreRequest(chat_prompt("Who?", prefix=prefix), text, end_of_turn=True)
        )
        assert score.sum == pytest.approx(0.0, abs=1e-3)  # as sure as it is to write it
    samples = await ask(generator, sampling=Sampling(3, n=2, temperature=1.0, seed=1))
    assert [each.text for each in samples.completions] == [REPLY] * 2
    assert samples.thinking.generated == 2 * tokens and samples.usage.generated == 4


@pytest.mark.parametrize(
    ("template", "chain", "options", "expected"),
    [
        (OPENS, CHAIN, {}, {"thought": THOUGHT, "cut": False, "tokens": 4}),
        (HYBRID, CHAIN, {"thinking": "strip"}, {"thought": THOUGHT, "cut": False, "tokens": 4}),
        (SILENT, CHAIN, {"thinking": "strip"}, {"thought": THOUGHT, "cut": False, "tokens": 4}),
        (
            OPENS,
            ENDLESS,
            {"max_thinking_tokens": 3},
            {"thought": "Hm, maybe Rome.", "cut": True, "tokens": 3},
        ),
    ],
)
async def test_a_thought_has_a_budget_and_stands_in_no_reply(
    tmp_path: Path, template: str, chain: dict[str, str], options: dict[str, Any], expected: dict[str, Any]
) -> None:
    generator = await open_scripted(tmp_path / "model", template, chain, **options)
    await check_replies(generator, **expected)
    await generator.close()


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_vllm_thinks_as_transformers_does(tmp_path: Path) -> None:
    model = save_thinking_model(tmp_path / "model", OPENS)
    engine = VllmGenerator.open(ModelConfig(name=model, dtype="float32", kv_cache_gb=0.25))
    for budget, expected in (
        (12, {"thought": THOUGHT, "cut": False, "tokens": 4}),
        (2, {"thought": "Hm, maybe", "cut": True, "tokens": 2}),
    ):
        await check_replies(ThinkingGenerator(engine, engine.thinking, budget), **expected)
    await engine.close()


@pytest.mark.parametrize(("template", "mode"), [(HYBRID, "auto"), (OPENS, "off"), (SILENT, "off")])
async def test_with_thinking_off_the_reply_comes_at_once(tmp_path: Path, template: str, mode: str) -> None:
    generator = await open_scripted(tmp_path / "model", template, thinking=mode)
    for prefix, text in (("", REPLY), ("Answer:", f" {REPLY}")):
        reply = await ask(generator, prefix)
        assert (reply.text, reply.thinking, reply.usage.generated) == (text, TokenUsage(), 2)
        score = await generator.score(ScoreRequest(chat_prompt("Who?", prefix=prefix), text))
        assert score.sum == pytest.approx(0.0, abs=1e-3)
    await generator.close()


async def test_a_thought_that_nothing_announced_is_no_part_of_the_reply(tmp_path: Path) -> None:
    generator = await open_scripted(tmp_path / "model", SILENT)
    reply = await ask(generator)
    assert (reply.text, reply.thoughts_cut) == ("", 1)  # a stop string ended the thought
    whole = await ask(generator, sampling=Sampling(20, logprobs=True))
    assert (whole.text, whole.thoughts, whole.thoughts_cut) == (REPLY, (THOUGHT,), 0)
    assert whole.completions[0].token_texts[-2:] == (REPLY, "")
    assert whole.usage.generated + whole.thinking.generated == 9
    await generator.close()


@pytest.mark.parametrize("options", [{}, {"thinking": "strip"}])
async def test_a_watched_reply_shows_no_thought(tmp_path: Path, options: dict[str, Any]) -> None:
    generator = await open_scripted(tmp_path / "model", SILENT, **options)
    texts: list[str] = []
    request = GenerateRequest(chat_prompt("Who?"), Sampling(20), watch=texts.append)
    assert (await generator.generate(request)).text == REPLY
    assert {text.strip() for text in texts} == {"", REPLY} - ({""} if options else set())
    await generator.close()


async def test_thoughts_stand_in_the_ledger_under_a_role_of_their_own(tmp_path: Path) -> None:
    generator = await open_scripted(tmp_path / "model", OPENS, max_thinking_tokens=12)
    tools = Tools(Question("q", "Who?"), generator, keep_prompts=True)
    for prefix, role in (("Next question:", "sub_query"), ("Answer:", "final")):
        await tools.generate(chat_prompt("Who?", prefix=prefix), role=role, max_tokens=6, stop=["\n"])
    await tools.measuring().generate(chat_prompt("Who?"), role="final", max_tokens=6)
    steps = [step for step in tools.steps if isinstance(step, GenerateStep)]
    assert [step.texts for step in steps] == [(" Where is it?",), (f" {REPLY}",), (REPLY,)]
    assert steps[0].thoughts == (THOUGHT,)
    assert tools.ledger[THINKING] == TokenUsage(0, 0, 8, 0, 8)
    assert tools.ledger[MEASURING].generated == 4 + 2
    assert sum_usage(tools.ledger).generated == 8 + 2 + 2
    await generator.close()


async def test_a_token_budget_counts_thoughts_before_they_are_thought(tmp_path: Path) -> None:
    generator = await open_scripted(tmp_path / "model", OPENS, max_thinking_tokens=12)
    prompt = chat_prompt("Who?")
    cost = Tools(Question("q", "Who?"), generator).cost(prompt, 6)
    plain = Tools(Question("q", "Who?"), generator, budget=cost)
    await plain.generate(prompt, role="final", max_tokens=6)
    assert plain.spent.total <= cost
    with raises_message(BudgetExhaustedError):
        await Tools(Question("q", "Who?"), generator, budget=cost - 1).generate(
            prompt, role="final", max_tokens=6
        )
    await generator.close()


def test_thoughts_leave_most_of_the_window_to_passages() -> None:
    assert (thinking_budget(1024, 2048), thinking_budget(1024, 32768), thinking_budget(1, 2)) == (
        512,
        1024,
        1,
    )


async def test_corag_asks_and_answers_without_a_thought_and_pays_for_thoughts_apart(tmp_path: Path) -> None:
    generator = await open_scripted(tmp_path / "model", OPENS)
    retriever = WordRetriever([Passage("p", "France", "Where it is.")])
    tools = Tools(Question("q", "Who?"), generator, retriever)
    answer = await corag(Question("q", "Who?"), tools, CoRAGConfig(strategy="greedy", max_hops=2))
    assert answer.text == REPLY
    assert set(retriever.queries) <= {"Who?", SUB_QUERY} and SUB_QUERY in retriever.queries
    texts = [text for step in tools.steps if isinstance(step, GenerateStep) for text in step.texts]
    assert not any("Hm," in text or "think" in text for text in texts)
    calls = sum(usage.calls for usage in tools.ledger.values())
    assert tools.ledger[THINKING].generated == 4 * calls
    await generator.close()


async def open_served(server: ThinkingServer, **options: Any) -> Generator:
    return await open_generator(ModelConfig(backend="openai", urls=(server.url,), retries=0, **options))


async def test_a_server_has_no_thoughts_where_arguments_of_its_template_switch_them_off() -> None:
    switch = "chat_template_kwargs"
    with ThinkingServer(switch=switch) as server:
        generator = await open_served(server, thinking="off")
        assert "thinks" not in generator.about[0]
        server.bodies.clear()
        reply = await ask(generator, sampling=Sampling(2))
        assert (reply.text, reply.thinking) == ("It is Paris, the capital.", TokenUsage())
        assert server.bodies[0]["max_tokens"] == 2 and switch in server.bodies[0]
        thinking = await open_served(server, thinking="strip")
        assert thinking.fingerprint != generator.fingerprint
        assert "it thinks before it replies" in thinking.about[0]
        await generator.close()
        await thinking.close()


@pytest.mark.parametrize(("apart", "opens"), [(False, False), (True, False), (False, True)])
async def test_thoughts_of_other_servers_have_room_besides_the_reply_and_stand_apart(
    apart: bool, opens: bool
) -> None:
    with ThinkingServer(apart=apart, opens=opens) as server:
        generator = await open_served(server, max_thinking_tokens=8, thinking="strip")
        assert generator.thinking_tokens == 8
        reply = await ask(generator, sampling=Sampling(10))
        assert reply.text.startswith("It is Paris, the capital.")
        assert (reply.thoughts, reply.thoughts_cut) == ((THOUGHT,), 0)
        assert reply.thinking.generated > 0
        assert reply.thinking.generated + reply.usage.generated == 10
        # A stop that the server had would end the thought.
        reply = await ask(generator, sampling=Sampling(10, stop=(",",)))
        assert (reply.text, "stop" in server.bodies[-1]) == ("It is Paris", False)
        await generator.close()


async def test_a_reply_cut_within_a_thought_is_empty_and_counted_and_none_is_longer_than_its_own_limit() -> (
    None
):
    with ThinkingServer() as server:
        short = await open_served(server, max_thinking_tokens=1)
        reply = await ask(short, sampling=Sampling(3))
        assert (reply.text, reply.completions[0].finish_reason, reply.thoughts_cut) == ("", "length", 1)
        assert server.bodies[-1]["max_tokens"] == 4
        # Of ten words seven are thoughts; the reply has three, which an estimate of tokens cuts to its limit.
        wide = await open_served(server, max_thinking_tokens=8)
        reply = await ask(wide, sampling=Sampling(4))
        assert (reply.text, reply.completions[0].finish_reason) == ("It is Paris, the", "length")
        for generator in (short, wide):
            await generator.close()


async def test_what_is_thought_aloud_is_a_reply(tmp_path: Path) -> None:
    generator = await open_scripted(tmp_path / "model", OPENS)
    prompt = replace(chat_prompt("Who?"), thought=ALOUD)
    reply = await generator.generate(GenerateRequest(prompt, Sampling(12)))
    assert reply.text.startswith(THOUGHT) and reply.text.endswith(REPLY) and not reply.thoughts
    await generator.close()
