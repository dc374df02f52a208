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

from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.costs import hand_back_final_answer, hold_back_scores
from corag.decode import decode_chain
from corag.final_answer import Context
from corag.rank import Candidate, Outcome, rank, score
from corag.shared_budget import QuestionBudget, SharedBudget
from corag.strategies import sample_and_score
from corag.tree import tree_search
from core.tools import Tools

HEADROOM = 1.5  # a stage may cost so many times what the greedy chain makes one expect


async def adaptive(tools: Tools, config: CoRAGConfig, context: Context, budget: QuestionBudget) -> Outcome:
    """Greedy, then samples, then tree search, as long as the best chain is unsure."""
    # Stage 1, for every question: a greedy chain. What it cost tells what others will cost, about.
    with hand_back_final_answer(context.costs, tools, config):
        with hold_back_scores(1, context.costs, tools, config):
            chain = await decode_chain(Chain(), config.max_hops, tools, config, temperature=0, path="chain 1")
        decoded = tools.spent.total
        candidates = [await score(chain, "chain 1", tools, config, context)]
    states = list[Candidate]()
    limit = note_score_and_limit(candidates[0], budget.shared, config)
    # A chain is scored once, however many hops it has.
    per_hop, per_score = decoded / max(1, len(chain)), tools.spent.total - decoded
    budget.charge(final_to_come(candidates, context))

    # Stages 2 and 3, for the unsure: the other N - 1 chains, then a tree.
    others = config.chains - 1
    for stage, hops, scores in (
        ("samples", others * config.max_hops, others),
        ("tree", hops_of_tree(config), scores_of_tree(config)),
    ):
        allowed = math.ceil(HEADROOM * (hops * per_hop + scores * per_score))
        best = rank(candidates).best
        sure = best.score is not None and best.score <= limit  # a chain without a score has found nothing
        if sure or not budget.affords(allowed):
            break
        if not hops:
            continue
        with budget.reserve(allowed) as most:
            (branch,) = tools.branch(1, most)
            if stage == "samples":
                candidates += await sample_and_score(range(2, config.chains + 1), branch, config, context)
            else:
                best, states = await search_tree(candidates, branch, config, context)
                candidates.append(best)
        budget.charge(final_to_come(candidates, context))
    chosen = rank(candidates)
    return replace(chosen, candidates=(*chosen.candidates, *states))


async def search_tree(
    candidates: list[Candidate], tools: Tools, config: CoRAGConfig, context: Context
) -> tuple[Candidate, list[Candidate]]:
    """Return the chain that a tree search keeps, scored, and the search's other states.

    A state's value is that of its rollouts: the chain must show a score of its own to be compared.
    """
    with hold_back_scores(1, context.costs, tools, config):
        found = await tree_search(tools, config, context, [each.chain for each in candidates])
    best = await score(found.best.chain, found.best.path, tools, config, context)
    others = [each for each in found.candidates if each is not found.best]
    return replace(best, value=found.best.value), others


def note_score_and_limit(first: Candidate, shared: SharedBudget, config: CoRAGConfig) -> float:
    """Note the greedy chain's score for the questions to come; return the score above which one is unsure."""
    if first.score is not None:
        shared.scores.append(first.score)
    if config.unsure_above is not None:
        return config.unsure_above
    return statistics.median(shared.scores) if shared.scores else math.inf


def final_to_come(candidates: list[Candidate], context: Context) -> int:
    """Return what the final answer will still cost: nothing if it was asked for to score the best chain."""
    return 0 if rank(candidates).best.final else context.costs.final_answer


def hops_of_tree(config: CoRAGConfig) -> int:
    """How many hops a tree search takes at most."""
    return config.max_hops * config.beam * config.expand * (1 + config.rollouts * config.rollout_hops)


def scores_of_tree(config: CoRAGConfig) -> int:
    """How many chains a tree search scores at most: its rollouts, and the one that it keeps."""
    return config.max_hops * config.beam * config.expand * config.rollouts + 1
