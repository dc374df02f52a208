"""Adaptive compute: spend more only where the chain's own score says that it is unsure.

The paper asks for compute that is allotted per question (its limitations); the rule is ours: a greedy chain,
then samples, then tree search, each only if the best chain so far scores worse than a limit. With
``mean_budget`` the questions of a run share a purse: each pays in that much and is charged what it spends,
and an unsure one goes on only if the purse affords it. So the run keeps to the mean (unless greedy chains
alone cost more); but which of two unsure questions gets the tokens depends on which comes first. The same is
true of the limit if it is left to the run, which takes the median of the greedy scores so far.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from corag.candidates import Candidate, Outcome, cost_of_scores, judge, pick
from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.decode import grow
from corag.final_answer import Context
from corag.strategies import sample_and_score
from corag.tree import tree_search
from core.runs.rows import SavedRow
from core.tools import Purse, Tools

HEADROOM = 1.5  # a stage may cost so many times what the greedy chain makes one expect


class Account:
    """What one question pays into the purse of its run and is charged for.

    Without a ``mean_budget`` everything is affordable.
    """

    def __init__(self, purse: Purse, mean_budget: int) -> None:
        self._purse = purse
        self._mean = mean_budget
        self._balance = 0  # what this question has added to the purse so far

    def charge(self, tokens: int) -> None:
        """Set what the question costs altogether, as far as is known now.

        Before the first charge it adds nothing.

        Questions that have just begun must not be counted on: they still have to pay for their own chains.
        """
        self._purse.balance += self._mean - tokens - self._balance
        self._balance = self._mean - tokens

    def affords(self, tokens: int) -> bool:
        """Whether the purse has so many tokens for this question."""
        return not self._mean or self._purse.balance >= tokens

    @contextmanager
    def reserving(self, tokens: int) -> Iterator[int | None]:
        """Keep tokens from other questions during the block; give its limit, None if there is none."""
        self._purse.balance -= tokens
        try:
            yield tokens if self._mean else None
        finally:
            self._purse.balance += tokens


async def adaptive(tools: Tools, config: CoRAGConfig, context: Context, account: Account) -> Outcome:
    """Greedy, then samples, then tree search, as long as the best chain is unsure."""
    with tools.holding(cost_of_scores(Chain(), config.max_hops, 1, tools, config)):
        chain = await grow(Chain(), config.max_hops, tools, config, temperature=0, path="chain 1")
    first = await judge(chain, "chain 1", tools, config)
    limit = the_limit(first, tools.purse, config)
    # with the score: what another hop will cost, about
    price_per_hop = tools.spent.total / max(1, len(chain))
    account.charge(tools.spent.total + context.reserve)

    contenders, states = [first], []
    samples, tree = (config.chains - 1) * config.max_hops, hops_of_tree(config)
    for stage, hops in (("samples", samples), ("tree", tree)):
        allowed = math.ceil(HEADROOM * hops * price_per_hop)
        best = pick(contenders).best
        sure = best.score is not None and best.score <= limit  # a chain without a score has found nothing
        if sure or not account.affords(allowed):
            break
        if not hops:
            continue
        with account.reserving(allowed) as most:
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
        account.charge(tools.spent.total + context.reserve)
    chosen = pick(contenders)
    return replace(chosen, candidates=(*chosen.candidates, *states))


def the_limit(first: Candidate, purse: Purse, config: CoRAGConfig) -> float:
    """Return the score above which a chain is unsure, having noted the greedy chain's for the questions to
    come.
    """
    if first.score is not None:
        purse.scores.append(first.score)
    if config.unsure_above is not None:
        return config.unsure_above
    return statistics.median(purse.scores) if purse.scores else math.inf


def hops_of_tree(config: CoRAGConfig) -> int:
    """How many hops a tree search takes at most."""
    return config.max_hops * config.beam * config.expand * (1 + config.rollouts * config.rollout_hops)


def purse_of(rows: Mapping[str, SavedRow], config: CoRAGConfig) -> Purse:
    """Return the purse as the answered questions of a run left it, so that a resumed run goes on with it."""
    purse = Purse()
    for row in rows.values():
        if row.answer is None:
            continue
        purse.balance += config.mean_budget - row.total_usage.total
        if (score := row.further["chains"][0]["score"]) is not None:
            purse.scores.append(score)
    return purse
