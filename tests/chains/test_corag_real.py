"""CoRAG with the real small model: what no scripted generator can show."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from corag.chains.chain import Chain, SubQuery
from corag.chains.config import CoRAGConfig
from corag.chains.decode import take_hop
from corag.chains.rank import answer_log_likelihood
from corag.chains.signals import refusal_log_likelihood
from corag.core.tools import Tools
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
