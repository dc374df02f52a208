"""Scores that rank chains.

All read token ids and lengths from the engine's own tokenizer, so they suit any model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.prompting import continuation, final_answer_prompt, refusal_prompt
from core.gather import gather
from core.text import normalize_answer
from core.tools import Tools


async def refusal_log_likelihood(chain: Chain, tools: Tools, config: CoRAGConfig, *, path: str = "") -> float:
    """Test time: mean log-likelihood per token of the refusal sentence and end of turn, given the chain.

    Lower is better.

    A chain that answers the question makes "nothing found" unlikely (paper, section 3.3; released code,
    ``_eval_single_path``).
    """
    prompt = refusal_prompt(tools.question.text, chain, config)
    target = continuation(prompt, config.refusal)
    return (await tools.score(prompt, target, role="score", end_of_turn=True, path=path)).mean


@dataclass(frozen=True, slots=True)
class GoldScore:
    """The gold answer's log-likelihood: of the alias likeliest per token (``mean``) and of that likeliest as
    a whole (``sum``).
    """

    mean: float
    sum: float


async def gold_log_likelihood(
    chain: Chain, answers: Sequence[str], tools: Tools, config: CoRAGConfig, *, path: str = ""
) -> GoldScore:
    """Training: log P(A | Q, Q_1:L, A_1:L), with the end of turn, without passages. Higher is better.

    Of several gold answers the likeliest counts. Paper, section 3.1; its threshold of -0.05 is on the mean
    per token.
    """
    prompt = final_answer_prompt(tools.question.text, chain, (), config)
    scores = await gather(
        branch.score(prompt, continuation(prompt, answer), role="score", end_of_turn=True, path=path)
        for answer, branch in zip(answers, tools.branch(len(answers)), strict=True)
    )
    return GoldScore(max(score.mean for score in scores), max(score.sum for score in scores))


def votes(answers: Sequence[str]) -> list[int]:
    """For each final answer, how many of all are the same after normalising; higher is better.

    Blank ones have no votes.

    Needs no log-probabilities.
    """
    spelled = [normalize_answer(answer) for answer in answers]
    counts = Counter(filter(None, spelled))
    return [counts[answer] for answer in spelled]
