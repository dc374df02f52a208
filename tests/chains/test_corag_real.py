"""CoRAG with the real small model: what no scripted generator can show."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

import pytest

from corag.chains.chain import Chain, SubQuery
from corag.chains.config import CoRAGConfig
from corag.chains.decode import take_hop
from corag.chains.method import CoRAGAnswer, corag
from corag.chains.rank import answer_log_likelihood
from corag.chains.signals import refusal_log_likelihood
from corag.core.tools import GenerateStep, Tools
from corag.generation.transformers_engine import TransformersGenerator
from corag.generation.vllm_engine import VllmGenerator
from tests.fakes import WordRetriever
from tests.story import QUESTION, WORLD

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
SMALL = {
    "max_hops": 2,
    "passages_per_hop": 2,
    "context_passages": 2,
    "max_sub_query_tokens": 16,
    "max_sub_answer_tokens": 8,
}


async def decode(generator: object, seed: int = 0, **options: object) -> CoRAGAnswer:
    tools = Tools(QUESTION, generator, WordRetriever(WORLD), seed=seed)  # type: ignore[arg-type]
    return await corag(QUESTION, tools, CoRAGConfig(max_answer_tokens=8, **(SMALL | options)))  # type: ignore[arg-type]


async def test_the_same_seed_gives_the_same_chains_and_another_one_others(
    hf_generator: TransformersGenerator,
) -> None:
    first, again, other = [
        asdict(await decode(hf_generator, seed, strategy="best_of_n", chains=2, passages_per_hop=1))
        for seed in (1, 1, 2)
    ]
    assert first == again
    assert first["chains"] != other["chains"]


async def test_tree_search_scores_with_forced_decoding_under_vllm(vllm_generator: VllmGenerator) -> None:
    answer = await decode(vllm_generator, strategy="tree", expand=2, rollouts=1)
    assert all(chain.value is not None and chain.value < 0 for chain in answer.chains)
    depth_two = [chain for chain in answer.chains if len(chain.hops) == 2]
    assert answer.steps == 2 and answer.chains[answer.chosen] in depth_two
    assert min(chain.value or 0 for chain in depth_two) == answer.chains[answer.chosen].value


async def test_both_engines_give_a_chain_the_same_scores(
    vllm_generator: VllmGenerator, hf_generator: TransformersGenerator
) -> None:
    scores = []
    for generator in (vllm_generator, hf_generator):
        tools = Tools(QUESTION, generator, WordRetriever(WORLD))
        config = CoRAGConfig(**SMALL)  # type: ignore[arg-type]
        chain = await take_hop(Chain(), SubQuery("Who wrote The Glass Orchard?"), tools, config, path="hop 1")
        assert chain.hits[0]
        chain = Chain().then(replace(chain.hops[0], sub_answer="Mara Velden", refused=False), chain.hits[0])
        refusal, gold = await asyncio.gather(
            refusal_log_likelihood(chain, tools, config),
            answer_log_likelihood(chain, ["Issel", "the river Issel"], tools, config),
        )
        scores.append((refusal, gold.mean, gold.sum))
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


async def test_a_sub_query_longer_than_the_window_is_cut_and_counted(
    hf_generator: TransformersGenerator,
) -> None:
    tools = Tools(QUESTION, hf_generator, WordRetriever(WORLD))
    endless = SubQuery("Who wrote The Glass Orchard and " * 600)
    chain = await take_hop(Chain(), endless, tools, CoRAGConfig(max_sub_answer_tokens=4), path="hop 1")
    (step,) = [step for step in tools.steps if isinstance(step, GenerateStep)]
    assert step.shortening.cut_tokens > 500 and step.shortening.count("passage") == len(chain.hits[0]) > 0
    assert step.usage.prompt + step.usage.generated <= 2048
