"""What CoRAG's parts will cost, about, and how much of them a budget affords. Without one all are 0.

Apart from the strategies, so that they read as in the paper. All figures are tokens, prompt and completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from corag.chain import Chain, top_passages
from corag.config import CoRAGConfig
from corag.prompting import (
    STOP_CHECK_TOKENS,
    clip,
    final_answer_prompt,
    refusal_prompt,
    stop_check_prompt,
    sub_answer_prompt,
    sub_query_prompt,
    verify_prompt,
)
from core.tools import Tools
from core.types import Hit

TOKENS_PER_HOP = 48  # what a hop adds to later prompts: a sub-query, a short sub-answer, their labels


@dataclass(frozen=True, slots=True)
class Costs:
    """What a hop, the final answer and a verifier's score may cost, about; 0 without a budget.

    ``verify``: before what the chain's hops add to its two prompts.
    """

    hop: int = 0
    final_answer: int = 0
    verify: int = 0


NO_COSTS = Costs()


def expected_costs(hits: Sequence[Hit], tools: Tools, config: CoRAGConfig) -> Costs:
    """Reckon with what was found for the question: other searches will find passages of like length."""
    if tools.left is None and not config.mean_budget:
        return NO_COSTS
    query, nothing = tools.question.text, Chain()
    shown = clip(top_passages(hits, config.context_passages), tools.count_tokens, config)
    final = tools.cost(final_answer_prompt(query, nothing, shown, config), config.max_answer_tokens)
    sub_query = tools.cost(sub_query_prompt(query, nothing, config), config.max_sub_query_tokens)
    read = sub_answer_prompt(query, top_passages(hits, config.passages_per_hop), config)
    sub_answer = tools.cost(read, config.max_sub_answer_tokens)
    verify = 0
    if config.uses_verifier:
        evidence = clip(top_passages(hits, config.verify_passages), tools.count_tokens, config)
        asked = verify_prompt(query, nothing, evidence, "", config)
        verify = 2 * tools.cost(asked, config.max_answer_tokens + 1)  # the answer, and Yes or No
    stop = _stop_cost(verify, tools, config)
    return Costs(
        sub_query + sub_answer + stop + TOKENS_PER_HOP, final + config.max_hops * TOKENS_PER_HOP, verify
    )


def _stop_cost(verify: int, tools: Tools, config: CoRAGConfig) -> int:
    """Return what the stop rule asks after a hop. ``verify``: what the verifier's score costs."""
    query, nothing = tools.question.text, Chain()
    match config.stop:
        case "length":
            return 0
        case "learned":  # Yes, and No
            return 2 * tools.cost(stop_check_prompt(query, nothing, config), 1)
        case "check":
            return tools.cost(stop_check_prompt(query, nothing, config), STOP_CHECK_TOKENS)
        case "settled" | "verifier":
            draft = tools.cost(final_answer_prompt(query, nothing, (), config), config.max_answer_tokens)
            return draft + (verify if config.stop == "verifier" else 0)


def affordable_chains(costs: Costs, tools: Tools, config: CoRAGConfig) -> int:
    """Return how many of the N chains the budget allows: fewer whole chains, not as many shorter ones."""
    if tools.left is None:
        return config.chains
    chain = costs.hop * config.max_hops + score_cost(Chain(), config.max_hops, costs, tools, config)
    return max(1, min(config.chains, tools.left // max(1, chain)))


def hold_back_scores(
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
    return tools.hold_back_tokens(scores if tools.left is None else min(scores, tools.left // 2))


def hand_back_final_answer(costs: Costs, tools: Tools, config: CoRAGConfig) -> AbstractContextManager[None]:
    """Free, for the block, what corag() holds back for the final answer, where scores are of final answers.

    They are asked for within the block and nothing is afterwards: one of them will be the final one.
    """
    within = config.judges_answers and config.judged == "final"
    return tools.hold_back_tokens(-costs.final_answer if within else 0)


def score_cost(chain: Chain, hops: int, costs: Costs, tools: Tools, config: CoRAGConfig) -> int:
    """Return what scoring a chain will cost once it has ``hops`` more hops; 0 without a budget.

    The answer that is judged is counted in.
    """
    if tools.left is None:
        return 0
    query, added = tools.question.text, hops * TOKENS_PER_HOP
    cost = 0
    if "refusal" in config.chain_signals:
        end_of_turn = 1
        prompt = refusal_prompt(query, chain, config)
        cost += tools.cost(prompt, tools.count_tokens(config.refusal) + end_of_turn) + added
    if "verifier" in config.chain_signals:
        cost += costs.verify + 2 * added
    # A draft and an answer's likelihood are of the same prompt.
    drafts = (config.judges_answers and config.judged == "draft") + ("likelihood" in config.chain_signals)
    if drafts:
        prompt = final_answer_prompt(query, chain, (), config)
        cost += drafts * (tools.cost(prompt, config.max_answer_tokens + 1) + added)
    return cost + (costs.final_answer if config.judges_answers and config.judged == "final" else 0)


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
