"""The decoding strategies under one interface (paper, section 3.3), and adaptive compute, which goes from one to the next."""

from __future__ import annotations

import math
import statistics
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from corag.candidates import Candidate, Outcome, hold_for_score, judge, pick
from corag.chain import Chain
from corag.concluding import Context, final_answer
from corag.config import CoRAGConfig
from corag.growing import grow
from corag.scores import votes
from corag.tree import tree_search
from core.together import together
from core.tools import Tools

HEADROOM = 1.5  # a stage of adaptive may cost so many times what the greedy chain makes one expect
Strategy = Callable[[Tools, CoRAGConfig, Context], Awaitable[Outcome]]


async def greedy(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """One chain, every sub-query at temperature 0. It is not scored: there is nothing to choose."""
    chain = await grow(Chain(), config.max_hops, tools, config, temperature=0, path="chain 1")
    return Outcome((Candidate(chain, "chain 1"),), 0)


async def best_of_n(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """N chains at the same time; the one of the best score is kept, or the one whose final answer most of them give."""
    if config.rank_by == "vote":
        chains = await sample_chains(range(1, config.chains + 1), tools, config)
        return await by_vote(chains, tools, config, context)
    if config.chains == 1:  # wins anyhow, so is not scored
        return pick(await sample_chains([1], tools, config))
    return pick(await sample_and_score(range(1, config.chains + 1), tools, config))


async def tree(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """Breadth-first search over sub-queries, judged by rollouts."""
    return await tree_search(tools, config)


async def sample_chains(numbers: Sequence[int], tools: Tools, config: CoRAGConfig) -> list[Candidate]:
    """Sample the chains of these numbers. A chain depends on its number alone, so 8 chains begin with the same 4 as 4 chains."""

    async def one(number: int, branch: Tools) -> Candidate:
        path = f"chain {number}"
        temperature = 0 if config.first_chain_greedy and number == 1 else config.temperature
        return Candidate(await grow(Chain(), config.max_hops, branch, config, temperature=temperature, path=path), path)

    branches = tools.branch(len(numbers))
    return await together(one(number, branch) for number, branch in zip(numbers, branches, strict=True))


async def sample_and_score(numbers: Sequence[int], tools: Tools, config: CoRAGConfig) -> list[Candidate]:
    """Sample chains and score them, keeping room in the budget for the scores."""
    held = hold_for_score(Chain(), config.max_hops, len(numbers), tools, config)
    chains = await sample_chains(numbers, tools, config)
    tools.hold(-held)
    return await score(chains, tools, config)


async def score(candidates: Iterable[Candidate], tools: Tools, config: CoRAGConfig) -> list[Candidate]:
    """Score chains at the same time."""
    waiting = list(candidates)
    branches = tools.branch(len(waiting))
    return await together(
        judge(each.chain, each.path, branch, config) for each, branch in zip(waiting, branches, strict=True)
    )


async def by_vote(candidates: Sequence[Candidate], tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """Answer from every chain; the most frequent answer wins, and of its chains the first is kept."""
    tools.hold(-context.reserve)  # every answer is a final one
    concluded = await together(
        final_answer(each.chain, context, branch, config, path=each.path)
        for each, branch in zip(candidates, tools.branch(len(candidates)), strict=True)
    )
    tools.hold(context.reserve)
    counts = votes([each.text for each in concluded])
    chosen = counts.index(max(counts))
    voted = (Candidate(each.chain, each.path, -float(count)) for each, count in zip(candidates, counts, strict=True))
    return Outcome(tuple(voted), chosen, concluded[chosen])


async def adaptive(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """Spend more only where the best chain's own score says that it is unsure: greedy, then samples, then tree search.

    The paper asks for compute that is allotted per question; the rule is ours. With ``mean_budget`` every question pays that much
    into the run's purse and is charged what it spends; an unsure one goes on only if the purse affords it.
    """
    held = hold_for_score(Chain(), config.max_hops, 1, tools, config)
    chain = await grow(Chain(), config.max_hops, tools, config, temperature=0, path="chain 1")
    tools.hold(-held)
    found = [await judge(chain, "chain 1", tools, config)]
    price = tools.spent.total  # of one chain and its score, so of another one too, about
    tools.purse.scores.append(found[0].rank)
    limit = statistics.median(tools.purse.scores) if config.unsure_above is None else config.unsure_above
    charged = price + context.reserve
    tools.purse.balance += config.mean_budget - charged

    async def samples(branch: Tools) -> list[Candidate]:
        return await sample_and_score(range(2, config.chains + 1), branch, config)

    async def search(branch: Tools) -> list[Candidate]:
        return list((await tree_search(branch, config, [each.chain for each in found])).candidates)

    hops_of_tree = config.max_hops * config.beam * config.expand * (1 + config.rollouts * config.rollout_hops)
    for stage, hops in ((samples, (config.chains - 1) * config.max_hops), (search, hops_of_tree)):
        allowed = math.ceil(HEADROOM * hops * price / max(1, len(chain)))
        sure = pick(found).best.rank <= limit
        if sure or not allowed or (config.mean_budget and tools.purse.balance < allowed):
            break
        (branch,) = tools.branch(1, allowed if config.mean_budget else None)
        tools.purse.balance -= allowed  # so that no other question counts on it meanwhile
        found += await stage(branch)
        tools.purse.balance += allowed - branch.spent.total
        charged += branch.spent.total
    return replace(pick(found), charged=charged)


STRATEGIES: dict[str, Strategy] = {"greedy": greedy, "best_of_n": best_of_n, "tree": tree, "adaptive": adaptive}
