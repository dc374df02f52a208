"""The verifier (experimental): the model says whether an answer is right, given the chain and its passages.

After V-STaR (Hosseini et al. 2024, arXiv 2402.06457), whose verifier is trained on a model's own right and
wrong answers; here with one prompt and the likelihoods of two words, often in the same adapter. The row task
``verify`` teaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from corag.chains.asking import yes_over_no
from corag.chains.chain import Chain, top_passages
from corag.chains.prompting import ChainOptions, clip, verify_prompt
from corag.core.fusion import interleave
from corag.core.prompting.prompt import Prompt
from corag.core.tools import Tools
from corag.core.types import Hit, Passage


async def verifier_score(
    chain: Chain, answer: str, tools: Tools, config: ChainOptions, *, path: str = ""
) -> float:
    """Return log P(Yes) - log P(No), natural logarithms: above 0 the answer is rather right than wrong."""
    prompt = verify_request(tools.question.text, chain, answer, tools.count_tokens, config)
    return await yes_over_no(prompt, tools, role="verify", path=path)


def verify_request(
    query: str, chain: Chain, answer: str, count: Callable[[str], int], config: ChainOptions
) -> Prompt:
    """Return what the verifier is asked of an answer. ``count``: of a text's tokens."""
    passages = clip(read_passages(chain, config), count, config)
    return config.conventions.fit_hop(verify_prompt(query, chain, passages, answer, config), count)


def read_passages(chain: Chain, config: ChainOptions) -> list[Passage]:
    """Return the passages that the verifier sees, best first.

    Those that the sub-answers were read from, in turn: fused by rank, what every search finds would come
    before what holds a hop's answer.
    """
    hits = interleave([each[: config.passages_per_hop] for each in chain.hits])
    return [hit.passage for hit in hits[: config.verify_passages]]


def verdict_cost(hits: Sequence[Hit], tools: Tools, config: ChainOptions) -> int:
    """Return what a verdict may cost, about, if searches find passages like these hits.

    That is before what the chain's hops add to its two prompts.
    """
    passages = clip(top_passages(hits, config.verify_passages), tools.count_tokens, config)
    prompt = verify_prompt(tools.question.text, Chain(), passages, "", config)
    return 2 * tools.cost(prompt, config.max_answer_tokens + 1)  # the answer, and Yes or No
