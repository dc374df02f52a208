"""Every method with a real model in vLLM, behind a vLLM server and in transformers: one code path, three back
ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial

import pytest

from corag.baselines.self_rag import SelfRAGConfig, self_rag
from corag.core.errors import ConfigError
from corag.core.method import MethodConfig
from corag.core.protocols import Generator
from corag.core.runner import answer_question
from corag.core.runs.rows import Row
from corag.core.tools import GenerateStep, Tools
from corag.generation.config import ModelConfig
from corag.generation.open import open_generator
from corag.generation.transformers_engine import TransformersGenerator
from corag.generation.vllm_engine import VllmGenerator
from eval.experiment.registry import METHODS
from tests.baselines.replaying import check_ledger
from tests.fakes import WordRetriever
from tests.story import QUESTION, WORLD

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

# which refuses a model without reflection tokens
ANSWERING = [name for name in METHODS if name != "self_rag"]
SHORT = {
    "max_hops": 2,
    "max_steps": 2,
    "max_sentences": 2,
    "max_segments": 1,
    "max_rounds": 2,
    "max_turns": 2,
    "max_iterations": 1,
    "max_recalls": 0,
    "k": 1,
}
SHORT |= {"k_per_step": 1, "look_ahead_tokens": 4, "mode": "multi_hop", "documents": 2}


def short(config: MethodConfig) -> MethodConfig:
    """Return the options with few steps, few passages and short replies."""
    names = [each.name for each in fields(config)]
    replies = {name: 4 for name in names if name.startswith("max_") and name.endswith("_tokens")}
    return replace(config, **{name: value for name, value in SHORT.items() if name in names} | replies)


async def answers(generator: Generator, at_once: int) -> Mapping[str, tuple[Row, Tools]]:
    """Answer the question with every method, so many at the same time."""
    slots = asyncio.Semaphore(at_once)

    async def answer(name: str) -> tuple[Row, Tools]:
        tools = Tools(QUESTION, generator, WordRetriever(WORLD))
        method = partial(METHODS[name].function, config=short(METHODS[name].config()))
        async with slots:
            return await answer_question(QUESTION, method, tools), tools

    return dict(zip(ANSWERING, await asyncio.gather(*map(answer, ANSWERING)), strict=True))


async def test_every_method_takes_the_same_path_in_all_three_back_ends(
    vllm_generator: VllmGenerator, vllm_server: str, hf_generator: TransformersGenerator
) -> None:
    server = await open_generator(ModelConfig(backend="server", urls=(vllm_server,), remember=False))
    found = {}
    for name, generator in {"vllm": vllm_generator, "server": server, "transformers": hf_generator}.items():
        # A batch of transformers has every prompt as long as its longest one.
        found[name] = await answers(generator, 1 if name == "transformers" else len(ANSWERING))
        with pytest.raises(ConfigError, match="no reflection token"):
            await self_rag(QUESTION, Tools(QUESTION, generator, WordRetriever(WORLD)), SelfRAGConfig())
    await server.close()
    same = 0
    for method in ANSWERING:
        first = []
        for back_end, rows in found.items():
            row, tools = rows[method]
            assert row.error == "", (method, back_end)
            check_ledger(tools)
            assert tools.spent.calls >= 1 and row.answer is not None
            first.append(next(step for step in tools.steps if isinstance(step, GenerateStep)))
        assert len({(step.role, step.prompt) for step in first}) <= 1, method
        same += len({step.texts for step in first}) == 1
    # Greedy replies; a near tie may fall either way in another engine's arithmetic.
    assert same >= len(ANSWERING) - 3
