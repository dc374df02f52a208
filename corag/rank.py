"""Which chain is best: the scores of chains, at test time and for training, and their ranking.

Log-likelihoods are of token ids from the engine's own tokenizer, so they suit any model; refusals and votes
need none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.final_answer import FinalAnswer
from corag.prompting import continuation, final_answer_prompt, fit_hop_prompt, refusal_prompt
from core.errors import BudgetExhaustedError
from core.text import normalize_answer
from core.tools import Tools


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chain and its place in the search.

    ``score``: of this chain; lower is better; None if it was never needed, could not be afforded or is no
    number. ``value``: of a state of the tree: what its rollouts, which are longer chains, scored. The two are
    never compared. ``answer``: the final answer from this chain, if one was asked for.
    """

    chain: Chain
    path: str
    score: float | None = None
    value: float | None = None
    answer: FinalAnswer | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy hands back: all candidates in a fixed order, and the index of the chosen one.

    ``final_answer``: the chosen one's, if the strategy needed it to choose.
    """

    candidates: tuple[Candidate, ...]
    chosen: int
    final_answer: FinalAnswer | None = None

    @property
    def best(self) -> Candidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]


async def score(chain: Chain, path: str, tools: Tools, config: CoRAGConfig) -> Candidate:
    """Score a chain as ``rank_by`` says; a chain without hops has not found anything, so has no score."""
    if not len(chain):
        return Candidate(chain, path)
    if config.rank_by == "refusals":
        return Candidate(chain, path, float(chain.refusals))
    try:
        value = await refusal_log_likelihood(chain, tools, config, path=path)
    except BudgetExhaustedError:
        return Candidate(chain, path)
    return Candidate(chain, path, None if math.isnan(value) else value)  # not a number: no score


async def score_all(candidates: Sequence[Candidate], tools: Tools, config: CoRAGConfig) -> list[Candidate]:
    """Score chains at the same time."""
    return await tools.fan_out(candidates, lambda each, branch: score(each.chain, each.path, branch, config))


def rank(candidates: Sequence[Candidate]) -> Outcome:
    """Choose the candidate of the lowest score; the first of equals, and of unscored ones the longest."""
    # Without scores (a spent budget) the longest has found the most.
    ranks = [
        (1, -len(candidate.chain)) if candidate.score is None else (0, candidate.score)
        for candidate in candidates
    ]
    return Outcome(tuple(candidates), ranks.index(min(ranks)))


async def refusal_log_likelihood(chain: Chain, tools: Tools, config: CoRAGConfig, *, path: str = "") -> float:
    """Test time: mean log-likelihood per token of the refusal sentence and end of turn, given the chain.

    Lower is better: a chain that answers the question makes "No relevant information found" unlikely (paper,
    section 3.3, the penalty score; released code, ``_eval_single_path``).
    """
    prompt = refusal_prompt(tools.question.text, chain, config)
    prompt = fit_hop_prompt(prompt, tools.count_tokens, config)
    target = continuation(prompt, config.refusal)
    return (await tools.score(prompt, target, role="score", end_of_turn=True, path=path)).mean


def votes(answers: Sequence[str]) -> list[int]:
    """For each final answer, how many of all are the same after normalising; higher is better.

    Blank ones have no votes. It needs no log-probabilities (self-consistency, Wang et al. 2023).
    """
    spelled = [normalize_answer(answer) for answer in answers]
    counts = Counter(filter(None, spelled))
    return [counts[answer] for answer in spelled]


@dataclass(frozen=True, slots=True)
class GoldScore:
    """The gold answer's log-likelihood, natural logarithm.

    ``mean``: of the alias that is likeliest per token; ``sum``: of that which is likeliest as a whole.
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
    scores = await tools.fan_out(
        answers,
        lambda answer, branch: branch.score(
            prompt, continuation(prompt, answer), role="score", end_of_turn=True, path=path
        ),
    )
    return GoldScore(_likeliest(score.mean for score in scores), _likeliest(score.sum for score in scores))


def _likeliest(values: Iterable[float]) -> float:
    """Return the highest value; minus infinity if none is a number, so that such a chain is never chosen."""
    return max((value for value in values if not math.isnan(value)), default=-math.inf)
