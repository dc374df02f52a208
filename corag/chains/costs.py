"""What CoRAG's parts will cost, about, and how much of them a budget affords. Without one all are 0.

Apart from the strategies, so that they read as in the paper. All figures are tokens, prompt and completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from corag.chains.chain import Chain, top_passages
from corag.chains.config import CoRAGConfig
from corag.chains.prompting import (
    clip,
    final_answer_prompt,
    sub_answer_prompt,
    sub_query_prompt,
)
from corag.chains.signals import SIGNALS
from corag.chains.stopping import STOP_RULES
from corag.core.tools import Tools
from corag.core.types import Hit

TOKENS_PER_HOP = 48  # what a hop adds to later prompts: a sub-query, a short sub-answer, their labels


@dataclass(frozen=True, slots=True)
class Costs:
    """What a hop and the final answer may cost, about; 0 without a budget.

    ``hits``: what was found for the question. Other searches will find passages of like length.
    """

    hop: int = 0
    final_answer: int = 0
    hits: tuple[Hit, ...] = ()


NO_COSTS = Costs()


def expected_costs(hits: Sequence[Hit], tools: Tools, config: CoRAGConfig) -> Costs:
    """Estimate costs from what was found for the question; without a budget nothing is counted."""
    if tools.left is None:
        return NO_COSTS
    query, nothing = tools.question.text, Chain()
    passages = clip(top_passages(hits, config.context_passages), tools.count_tokens, config)
    final = tools.cost(final_answer_prompt(query, nothing, passages, config), config.max_answer_tokens)
    sub_query = tools.cost(sub_query_prompt(query, nothing, config), config.max_sub_query_tokens)
    hop_prompt = sub_answer_prompt(query, top_passages(hits, config.passages_per_hop), config)
    sub_answer = tools.cost(hop_prompt, config.max_sub_answer_tokens)
    stop = STOP_RULES[config.stop].cost(hits, tools, config)
    return Costs(
        sub_query + sub_answer + stop + TOKENS_PER_HOP, final + config.max_hops * TOKENS_PER_HOP, tuple(hits)
    )


def affordable_chains(costs: Costs, tools: Tools, config: CoRAGConfig) -> int:
    """Return how many of the N chains the budget allows: fewer whole chains, not as many shorter ones."""
    if tools.left is None:
        return config.chains
    chain = costs.hop * config.max_hops + score_cost(Chain(), config.max_hops, costs, tools, config)
    return max(1, min(config.chains, tools.left // max(1, chain)))


def reserve_for_scores(
    count: int,
    costs: Costs,
    tools: Tools,
    config: CoRAGConfig,
    *,
    chain: Chain | None = None,
    hops: int | None = None,
) -> AbstractContextManager[None]:
    """Keep room in the budget to score ``count`` chains that are decoded in the block.

    ``chain``, ``hops``: what they begin with, and how many hops they may add to it: by default all.
    """
    further = config.max_hops if hops is None else hops
    scores = count * score_cost(chain or Chain(), further, costs, tools, config)
    # No more than half of what is left: chains that cannot be decoded for it have nothing to score.
    return tools.reserve_tokens(scores if tools.left is None else min(scores, tools.left // 2))


def release_final_answer(costs: Costs, tools: Tools, config: CoRAGConfig) -> AbstractContextManager[None]:
    """Free, for the block, what corag() reserves for the final answer, where scores are of final answers.

    They are asked for within the block and nothing is afterwards: one of them will be the final one.
    """
    within = config.judges_answers and config.judged == "final"
    return tools.reserve_tokens(-costs.final_answer if within else 0)


def score_cost(chain: Chain, hops: int, costs: Costs, tools: Tools, config: CoRAGConfig) -> int:
    """Return what scoring a chain will cost once it has ``hops`` more hops; 0 without a budget.

    The answer that is judged is counted in.
    """
    if tools.left is None:
        return 0
    hop_tokens = hops * TOKENS_PER_HOP
    total = 0
    for name in config.chain_signals:
        cost = SIGNALS[name].cost(chain, costs.hits, tools, config)
        total += cost.tokens + cost.prompts * hop_tokens
    if config.judges_answers and config.judged == "draft":
        prompt = final_answer_prompt(tools.question.text, chain, (), config)
        total += tools.cost(prompt, config.max_answer_tokens + 1) + hop_tokens
    return total + (costs.final_answer if config.judges_answers and config.judged == "final" else 0)


def plan_depth(
    depth: int, states: int, costs: Costs, tools: Tools, config: CoRAGConfig
) -> tuple[CoRAGConfig | None, int | None]:
    """Return the options that a depth of the tree can afford, and its share of the budget; None if none.

    A small budget first costs rollouts, then their hops, then children; with fewer than two children there is
    nothing to choose. A depth gets an even share of what is left, or up to half of it if it needs so much.

    ``depth``: from 1 on. ``states``: how many are expanded in it.
    """
    if tools.left is None:
        return config, None
    one_score = score_cost(Chain(), depth + config.rollout_hops, costs, tools, config)
    even = tools.left // (config.max_hops - depth + 1)
    for rollouts in range(config.rollouts, 0, -1):
        for hops in range(min(config.rollout_hops, config.max_hops - depth), -1, -1):
            child = costs.hop * (1 + rollouts * hops) + rollouts * one_score
            full = states * config.expand * child
            share = min(full, max(even, tools.left // 2))
            children = min(config.expand, share // max(1, states * child))
            if children >= min(2, config.expand):
                return replace(config, expand=children, rollouts=rollouts, rollout_hops=hops), share
    return None, None
