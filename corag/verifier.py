"""The verifier: the model itself says whether an answer is right, given the chain and its passages.

After V-STaR (Hosseini et al. 2024, arXiv 2402.06457), whose verifier is trained on a model's own right and
wrong answers; here with one prompt and the likelihoods of two words, often in the same adapter. The row task
``verify`` teaches it. Apart from rank.py, which ranks by it, because decode.py stops by it too.
"""

from __future__ import annotations

from collections.abc import Callable

from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.prompting import clip, continuation, fit_hop_prompt, verify_prompt
from core.fusion import interleave
from core.prompting.prompt import Prompt
from core.tools import Tools
from core.types import Passage


async def verifier_score(
    chain: Chain, answer: str, tools: Tools, config: CoRAGConfig, *, path: str = ""
) -> float:
    """Return log P(Yes) - log P(No), natural logarithms: above 0 the answer is rather right than wrong."""
    prompt = verify_request(tools.question.text, chain, answer, tools.count_tokens, config)
    return await yes_over_no(prompt, tools, role="verify", path=path)


def verify_request(
    query: str, chain: Chain, answer: str, count: Callable[[str], int], config: CoRAGConfig
) -> Prompt:
    """Return what the verifier is asked of an answer. ``count``: of a text's tokens."""
    passages = clip(read_passages(chain, config), count, config)
    return fit_hop_prompt(verify_prompt(query, chain, passages, answer, config), count, config)


def read_passages(chain: Chain, config: CoRAGConfig) -> list[Passage]:
    """Return the passages that the verifier sees, best first.

    Those that the sub-answers were read from, in turn: fused by rank, what every search finds would come
    before what holds a hop's answer.
    """
    read = interleave([hop.hits[: config.passages_per_hop] for hop in chain.hops])
    return [hit.passage for hit in read[: config.verify_passages]]


async def yes_over_no(prompt: Prompt, tools: Tools, *, role: str, path: str = "") -> float:
    """Return log P(Yes) - log P(No) after a prompt, each by forced decoding (paper, section 5.4)."""
    # Not at the same time: which of the two a budget still allows would depend on which is answered first.
    # The second finds the first one's prompt in the prefix cache.
    yes = await tools.score(prompt, continuation(prompt, "Yes"), role=role, path=path)
    no = await tools.score(prompt, continuation(prompt, "No"), role=role, path=path)
    return yes.sum - no.sum
