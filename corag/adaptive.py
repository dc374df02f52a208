"""Adaptive compute: spend more only where the chain's own score says that it is unsure.

The paper asks for compute that is allotted per question (its limitations); the rule is ours: a greedy chain,
then samples, then tree search, each only if the best chain so far scores worse than a limit. With
``mean_budget`` the questions of a run share a budget: each pays in that much and is charged what it spends,
and an unsure one goes on only if the balance allows it. So the run keeps to the mean (unless greedy chains
alone cost more); but which of two unsure questions gets the tokens depends on which comes first. The same is
true of the limit if it is left to the run, which takes the median of the greedy scores so far.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

from corag.candidates import Candidate, Outcome, cost_of_scores, judge, pick
from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.decode import grow
from corag.final_answer import Context
from corag.shared_budget import QuestionBudget, SharedBudget
from corag.strategies import sample_and_score
from corag.tree import tree_search
from core.tools import Tools

HEADROOM = 1.5  # a stage may cost so many times what the greedy chain makes one expect


async def adaptive(tools: Tools, config: CoRAGConfig, context: Context, budget: QuestionBudget) -> Outcome:
    """Greedy, then samples, then tree search, as long as the best chain is unsure."""
    with tools.holding(cost_of_scores(Chain(), config.max_hops, 1, tools, config)):
        chain = await grow(Chain(), config.max_hops, tools, config, temperature=0, path="chain 1")
    first = await judge(chain, "chain 1", tools, config)
    limit = the_limit(first, budget.shared, config)
    # with the score: what another hop will cost, about
    price_per_hop = tools.spent.total / max(1, len(chain))
    budget.charge(tools.spent.total + context.reserve)

    contenders, states = [first], []
    samples, tree = (config.chains - 1) * config.max_hops, hops_of_tree(config)
    for stage, hops in (("samples", samples), ("tree", tree)):
        allowed = math.ceil(HEADROOM * hops * price_per_hop)
        best = pick(contenders).best
        sure = best.score is not None and best.score <= limit  # a chain without a score has found nothing
        if sure or not budget.affords(allowed):
            break
        if not hops:
            continue
        with budget.reserving(allowed) as most:
            (branch,) = tools.branch(1, most)
            if stage == "samples":
                contenders += await sample_and_score(range(2, config.chains + 1), branch, config)
            else:
                with branch.holding(cost_of_scores(Chain(), config.max_hops, 1, branch, config)):
                    found = await tree_search(branch, config, context, [each.chain for each in contenders])
                # A state's value is that of its rollouts: the chain that won must show its own score to be
                # compared.
                won = await judge(found.best.chain, found.best.path, branch, config)
                contenders.append(replace(won, value=found.best.value))
                states = [each for each in found.candidates if each is not found.best]
        budget.charge(tools.spent.total + context.reserve)
    chosen = pick(contenders)
    return replace(chosen, candidates=(*chosen.candidates, *states))


def the_limit(first: Candidate, shared: SharedBudget, config: CoRAGConfig) -> float:
    """Return the score above which a chain is unsure, having noted the greedy chain's for the questions to
    come.
    """
    if first.score is not None:
        shared.scores.append(first.score)
    if config.unsure_above is not None:
        return config.unsure_above
    return statistics.median(shared.scores) if shared.scores else math.inf


def hops_of_tree(config: CoRAGConfig) -> int:
    """How many hops a tree search takes at most."""
    return config.max_hops * config.beam * config.expand * (1 + config.rollouts * config.rollout_hops)
