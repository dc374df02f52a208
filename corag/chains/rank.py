"""Which chain is best: the scores of chains, at test time and for training, and their ranking.

Chains are measured by signals (:mod:`corag.chains.signals`); ``combine_scores`` makes scores of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from corag.chains.asking import draft_answer
from corag.chains.chain import Chain
from corag.chains.config import CoRAGConfig
from corag.chains.final_answer import Context, FinalAnswer, final_answer
from corag.chains.prompting import continuation, final_answer_prompt
from corag.chains.signals import SIGNALS
from corag.core.errors import BudgetExhaustedError
from corag.core.language.text import ballot
from corag.core.tools import Tools


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chain and its place in the search.

    ``score``: of this chain; lower is better; None if it was never needed, could not be afforded or is no
    number. ``value``: of a state of the tree: what its rollouts, which are longer chains, scored. The two are
    never compared. ``answer``: the one that was judged to score it; ``final``: the same with its passages, if
    that was the final answer. ``signals``: what was measured, each in its own unit (:func:`measure`).
    """

    chain: Chain
    path: str
    score: float | None = None
    value: float | None = None
    answer: str | None = None
    final: FinalAnswer | None = None
    signals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy returns: all candidates in a fixed order, and the index of the chosen one."""

    candidates: tuple[Candidate, ...]
    chosen: int

    @property
    def best(self) -> Candidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]


async def score(chain: Chain, path: str, tools: Tools, config: CoRAGConfig, context: Context) -> Candidate:
    """Score a chain by itself as ``rank_by`` says."""
    return combine_scores([await measure(chain, path, tools, config, context)], config)[0]


async def score_all(
    candidates: Sequence[Candidate], tools: Tools, config: CoRAGConfig, context: Context
) -> list[Candidate]:
    """Score chains at the same time; votes are counted among them."""
    measurements = await tools.fan_out(
        candidates, lambda each, branch: measure(each.chain, each.path, branch, config, context)
    )
    return combine_scores(measurements, config)


def rank(candidates: Sequence[Candidate]) -> Outcome:
    """Choose the candidate of the lowest score; the first of equals, and of unscored ones the longest."""
    # Without scores (a spent budget) the longest has found the most.
    ranks = [
        (1, -len(candidate.chain)) if candidate.score is None else (0, candidate.score)
        for candidate in candidates
    ]
    return Outcome(tuple(candidates), ranks.index(min(ranks)))


async def measure(chain: Chain, path: str, tools: Tools, config: CoRAGConfig, context: Context) -> Candidate:
    """Take a chain's answer, if answers are judged, and measure what ranking wants to know of the two.

    A chain without hops has not found anything: all it has is a vote. What the budget does not allow is
    missing.
    """
    candidate, signals = Candidate(chain, path), dict[str, float]()
    if not len(chain) and "vote" not in config.signals:
        return candidate
    try:
        if config.judges_answers and config.judged == "final":
            final = await final_answer(chain, context, tools, config, path=path)
            candidate = replace(candidate, answer=final.text, final=final)
        elif config.judges_answers:
            candidate = replace(candidate, answer=await draft_answer(chain, tools, config, path=path))
        for name in config.chain_signals if len(chain) else ():
            value = await measure_signal(name, chain, tools, config, path)
            if value is not None:
                signals[name] = value
    except BudgetExhaustedError:
        pass  # what is known by then is kept
    return replace(candidate, signals=signals)


async def measure_signal(
    name: str, chain: Chain, tools: Tools, config: CoRAGConfig, path: str
) -> float | None:
    """Measure one signal of a chain, in its own unit; None where there is none."""
    take = SIGNALS[name].measure
    return None if take is None else await take(chain, tools, config, path)


def combine_scores(candidates: Sequence[Candidate], config: CoRAGConfig) -> list[Candidate]:
    """Return the candidates with their scores, of what was measured: lower is better."""
    if "vote" in config.signals:
        answers = [each.answer or "" for each in candidates]
        counts = count_votes(answers)
        candidates = [
            replace(each, signals={**each.signals, "vote": count})
            for each, count in zip(candidates, counts, strict=True)
        ]
    return [replace(each, score=_penalty(each, config)) for each in candidates]


def _penalty(candidate: Candidate, config: CoRAGConfig) -> float | None:
    """Return a candidate's score: one signal in its own unit, else minus the sum of log-probabilities."""
    values = [candidate.signals.get(name, math.nan) for name in config.signals]
    if len(values) == 1:
        penalty = -SIGNALS[config.signals[0]].to_score(values[0])
    else:
        penalty = -sum(map(log_probability, config.signals, values))
        penalty = math.nan if math.isinf(penalty) else penalty  # a factor of 0, as of no votes
    return None if math.isnan(penalty) else penalty  # not a number: no score


def log_probability(name: str, value: float) -> float:
    """Return a signal's value as a log-probability; one that is no number has probability 0."""
    return -math.inf if math.isnan(value) else SIGNALS[name].log_probability(value)


def count_votes(answers: Sequence[str]) -> list[float]:
    """Return for each answer how many are the same after normalising; higher is better.

    Blank ones have no votes. Votes need no log-probabilities (self-consistency, Wang et al. 2023).
    """
    spellings = [ballot(answer) for answer in answers]
    counts = Counter(spellings)
    return [float(counts[spelling] if spelling else 0) for spelling in spellings]


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """An answer's log-likelihood, natural logarithm.

    ``mean``: of the alias that is likeliest per token; ``sum``: of that which is likeliest as a whole.
    """

    mean: float
    sum: float


async def answer_log_likelihood(
    chain: Chain, answers: Sequence[str], tools: Tools, config: CoRAGConfig, *, path: str = ""
) -> AnswerScore:
    """Return log P(A | Q, Q_1:L, A_1:L), with the end of turn, without passages. Higher is better.

    In training, of the gold answer. Of several the likeliest counts. Paper, section 3.1; its threshold of
    -0.05 is on the mean per token.
    """
    prompt = final_answer_prompt(tools.question.text, chain, (), config)
    scores = await tools.fan_out(
        answers,
        lambda answer, branch: branch.score(
            prompt, continuation(prompt, answer), role="score", end_of_turn=True, path=path
        ),
    )
    return AnswerScore(_likeliest(score.mean for score in scores), _likeliest(score.sum for score in scores))


def _likeliest(values: Iterable[float]) -> float:
    """Return the highest value; minus infinity if none is a number, so that such a chain is never chosen."""
    return max((value for value in values if not math.isnan(value)), default=-math.inf)
