"""Greedy and best-of-N decoding (paper, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from corag.chains.chain import Chain
from corag.chains.config import CoRAGConfig
from corag.chains.costs import affordable_chains, release_final_answer, reserve_for_scores
from corag.chains.decode import decode_chain
from corag.chains.final_answer import Context
from corag.chains.rank import Candidate, Outcome, rank, score_all
from corag.core.tools import Tools


async def greedy(tools: Tools, config: CoRAGConfig) -> Outcome:
    """One chain, every sub-query at temperature 0. It is not scored: there is nothing to choose."""
    chain = await decode_chain(Chain(), config.max_hops, tools, config, temperature=0, path="chain 1")
    return Outcome((Candidate(chain, "chain 1"),), 0)


async def best_of_n(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """N chains at the same time; the one of the lowest score is kept, or one of the most agreed on.

    A budget too small for N whole chains samples fewer, not shorter ones.
    """
    # Where scores are of final answers, none is to come afterwards: its tokens buy chains too.
    with release_final_answer(context.costs, tools, config):
        numbers = range(1, affordable_chains(context.costs, tools, config) + 1)
    # A single chain wins anyhow, so it is not scored; the released code does. (A vote notes its answer.)
    if len(numbers) == 1 and config.reuse and "vote" not in config.signals:
        return rank(await sample_candidates(numbers, tools, config))
    with release_final_answer(context.costs, tools, config):
        return rank(await sample_and_score(numbers, tools, config, context))


async def sample_candidates(numbers: Sequence[int], tools: Tools, config: CoRAGConfig) -> list[Candidate]:
    """Sample the chains of these numbers.

    A chain depends on its number alone, so 8 chains begin with the same 4 as 4 chains.
    """

    async def one(number: int, branch: Tools) -> Candidate:
        path = f"chain {number}"
        temperature = 0 if config.first_chain_greedy and number == 1 else config.temperature
        chain = await decode_chain(
            Chain(), config.max_hops, branch, config, temperature=temperature, path=path
        )
        return Candidate(chain, path)

    return await tools.fan_out(numbers, one)


async def sample_and_score(
    numbers: Sequence[int], tools: Tools, config: CoRAGConfig, context: Context
) -> list[Candidate]:
    """Sample chains, then score them, all at the same time."""
    with reserve_for_scores(len(numbers), context.costs, tools, config):
        chains = await sample_candidates(numbers, tools, config)
    return await score_all(chains, tools, config, context)
