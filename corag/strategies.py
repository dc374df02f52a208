"""Greedy and best-of-N decoding (paper, section 3.3), and the pieces that adaptive compute takes from
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from corag.candidates import Candidate, Outcome, cost_of_scores, judge, pick
from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.decode import grow
from corag.final_answer import Context, final_answer
from corag.scores import votes
from core.gather import gather
from core.tools import Tools


async def greedy(tools: Tools, config: CoRAGConfig) -> Outcome:
    """One chain, every sub-query at temperature 0. It is not scored: there is nothing to choose."""
    chain = await grow(Chain(), config.max_hops, tools, config, temperature=0, path="chain 1")
    return Outcome((Candidate(chain, "chain 1"),), 0)


async def best_of_n(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """N chains at the same time.

    The one of the best score is kept, or the one whose final answer most of them give.

    A budget too small for N whole chains samples fewer, not shorter ones.
    """
    chain_cost = context.hop_cost * config.max_hops + (context.reserve if config.rank_by == "vote" else 0)
    count = (
        config.chains if tools.left is None else max(1, min(config.chains, tools.left // max(1, chain_cost)))
    )
    numbers = range(1, count + 1)
    if config.rank_by == "vote":
        with tools.holding(context.reserve * (count - 1)):
            chains = await sample_chains(numbers, tools, config)
        return await by_vote(chains, tools, config, context)
    if count == 1:  # wins anyhow, so is not scored
        return pick(await sample_chains(numbers, tools, config))
    return pick(await sample_and_score(numbers, tools, config))


async def sample_chains(numbers: Sequence[int], tools: Tools, config: CoRAGConfig) -> list[Candidate]:
    """Sample the chains of these numbers.

    A chain depends on its number alone, so 8 chains begin with the same 4 as 4 chains.
    """

    async def one(number: int, branch: Tools) -> Candidate:
        path = f"chain {number}"
        temperature = 0 if config.first_chain_greedy and number == 1 else config.temperature
        return Candidate(
            await grow(Chain(), config.max_hops, branch, config, temperature=temperature, path=path), path
        )

    branches = tools.branch(len(numbers))
    return await gather(one(number, branch) for number, branch in zip(numbers, branches, strict=True))


async def sample_and_score(numbers: Sequence[int], tools: Tools, config: CoRAGConfig) -> list[Candidate]:
    """Sample chains and score them, keeping room in the budget for the scores."""
    with tools.holding(cost_of_scores(Chain(), config.max_hops, len(numbers), tools, config)):
        chains = await sample_chains(numbers, tools, config)
    return await score(chains, tools, config)


async def score(candidates: Iterable[Candidate], tools: Tools, config: CoRAGConfig) -> list[Candidate]:
    """Score chains at the same time."""
    waiting = list(candidates)
    branches = tools.branch(len(waiting))
    return await gather(
        judge(each.chain, each.path, branch, config) for each, branch in zip(waiting, branches, strict=True)
    )


async def by_vote(
    candidates: Sequence[Candidate], tools: Tools, config: CoRAGConfig, context: Context
) -> Outcome:
    """Answer from every chain; the most frequent answer wins, and of its chains the first is kept."""
    with tools.holding(-context.reserve):  # every answer is a final one
        concluded = await gather(
            final_answer(each.chain, context, branch, config, path=each.path)
            for each, branch in zip(candidates, tools.branch(len(candidates)), strict=True)
        )
    counts = votes([each.text for each in concluded])
    chosen = counts.index(max(counts))
    voted = (
        Candidate(each.chain, each.path, -float(count))
        for each, count in zip(candidates, counts, strict=True)
    )
    return Outcome(tuple(voted), chosen, concluded[chosen])
