"""Adaptive compute: chains of best of N are sampled until their vote is as good as decided.

This is adaptive consistency (Aggarwal et al., EMNLP 2023) with chains for samples. Ours: as many are sampled
at the same time as could decide the vote, where theirs are one after another; and what cannot be overtaken is
decided.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from corag.chains.config import CoRAGConfig
from corag.chains.costs import affordable_chains, release_final_answer, reserve_for_scores
from corag.chains.final_answer import Context
from corag.chains.rank import Candidate, Outcome, combine_scores, rank, score_all
from corag.chains.strategies import sample_candidates
from corag.core.language.text import ballot
from corag.core.tools import Tools


async def adaptive(tools: Tools, config: CoRAGConfig, context: Context) -> Outcome:
    """Sample chains until their vote is as good as decided; the first of the leading answer's is kept."""
    candidates = list[Candidate]()
    with release_final_answer(context.costs, tools, config):
        most = affordable_chains(context.costs, tools, config)
        while count := chains_to_decide(candidates, most - len(candidates), config.vote_sure):
            # Of a hard budget no more than their share: the others would be no chains of best of N.
            share = None if tools.left is None else tools.left * count // (most - len(candidates))
            (branch,) = tools.branch(1, share)
            numbers = range(len(candidates) + 1, len(candidates) + count + 1)
            with reserve_for_scores(count, context.costs, branch, config):
                chains = await sample_candidates(numbers, branch, config)
            candidates += await score_all(chains, branch, config, context)
            candidates = combine_scores(candidates, config)  # votes are of all
    return rank(candidates)


def chains_to_decide(candidates: Sequence[Candidate], chains_left: int, sure: float) -> int:
    """Return how many of ``chains_left`` further chains could decide a vote, the least; 0 if it is decided.

    It is decided if the leading answer is more frequent than the second in the long run with probability
    ``sure``, or if those that are left cannot bring another ahead.
    """
    counts = Counter(ballot(each.answer) for each in candidates if each.answer)
    counts.pop("", None)
    first, second = [*(count for _, count in counts.most_common(2)), 0, 0][:2]

    def is_decided(more: int) -> bool:
        return majority(first + more, second) >= sure or first + more - second > chains_left - more

    return next((more for more in range(chains_left) if is_decided(more)), chains_left)


def majority(first: int, second: int) -> float:
    """Return how probable it is that the first of two answers is the more frequent one in the long run.

    After so many votes for each, all shares equally likely before: P(p > 1/2), p ~ Beta(first + 1, second +
    1), which for whole numbers is a sum over fair coins.

    >>> majority(1, 0), majority(4, 0), majority(5, 1)
    (0.75, 0.96875, 0.9375)
    """
    coins = first + second + 1
    return 0.5**coins * sum(math.comb(coins, heads) for heads in range(first + 1))
