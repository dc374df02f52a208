"""Which chain is best: the scores of chains, at test time and for training, and their ranking.

Chains are measured by signals, each a function of one chain and its answer, but for votes, which are of all;
``combined`` makes scores of them. Log-likelihoods are of token ids from the engine's own tokenizer, so they
suit any model; refusals and votes need none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from corag.chain import Chain
from corag.config import CoRAGConfig
from corag.final_answer import Context, FinalAnswer, draft_answer, final_answer
from corag.prompting import continuation, final_answer_prompt, fit_hop_prompt, refusal_prompt
from corag.signals import SIGNALS, Signal
from corag.verifier import verifier_score
from core.errors import BudgetExhaustedError
from core.text import normalize_answer
from core.tools import Tools


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
    signals: Mapping[Signal, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy hands back: all candidates in a fixed order, and the index of the chosen one."""

    candidates: tuple[Candidate, ...]
    chosen: int

    @property
    def best(self) -> Candidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]


async def score(chain: Chain, path: str, tools: Tools, config: CoRAGConfig, context: Context) -> Candidate:
    """Score a chain by itself as ``rank_by`` says."""
    return combined([await measure(chain, path, tools, config, context)], config)[0]


async def score_all(
    candidates: Sequence[Candidate], tools: Tools, config: CoRAGConfig, context: Context
) -> list[Candidate]:
    """Score chains at the same time; votes are counted among them."""
    measured = await tools.fan_out(
        candidates, lambda each, branch: measure(each.chain, each.path, branch, config, context)
    )
    return combined(measured, config)


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

    A chain without hops has not found anything: all it has is a vote. What the budget does not allow, or a
    blank answer does not have, is missing.
    """
    found, signals = Candidate(chain, path), dict[Signal, float]()
    if not len(chain) and "vote" not in config.signals:
        return found
    try:
        if config.judges_answers and config.judged == "final":
            final = await final_answer(chain, context, tools, config, path=path)
            found = replace(found, answer=final.text, final=final)
        elif config.judges_answers:
            found = replace(found, answer=await draft_answer(chain, tools, config, path=path))
        for name in config.chain_signals if len(chain) else ():
            value = await signal_of(name, chain, found.answer or "", tools, config, path)
            if value is not None:
                signals[name] = value
    except BudgetExhaustedError:
        pass  # what is known by then is kept
    return replace(found, signals=signals)


async def signal_of(
    name: Signal, chain: Chain, answer: str, tools: Tools, config: CoRAGConfig, path: str
) -> float | None:
    """Measure one signal of a chain and its answer, in its own unit; None where there is nothing to measure.

    A vote is of all chains, so no single one has it.
    """
    match name:
        case "refusals":
            return float(chain.refusals)
        case "refusal":
            return await refusal_log_likelihood(chain, tools, config, path=path)
        case "probability":
            return chain.log_probability
        case "verifier" if answer.strip():
            return await verifier_score(chain, answer, tools, config, path=path)
        case "likelihood" if answer.strip():
            return (await answer_log_likelihood(chain, [answer], tools, config, path=path)).mean
    return None


def combined(candidates: Sequence[Candidate], config: CoRAGConfig) -> list[Candidate]:
    """Return the candidates with their scores, of what was measured: lower is better."""
    if "vote" in config.signals:
        answers = [each.answer or "" for each in candidates]
        counts = votes(answers, [_weight(each, config) for each in candidates])
        candidates = [
            replace(each, signals={**each.signals, "vote": count})
            for each, count in zip(candidates, counts, strict=True)
        ]
    return [replace(each, score=_penalty(each, config)) for each in candidates]


def _weight(candidate: Candidate, config: CoRAGConfig) -> float:
    """Return what a candidate's vote counts: 1, or its probability, which is 0 if it was not measured."""
    if config.vote_weight == "one":
        return 1.0
    return math.exp(log_probability(config.vote_weight, candidate.signals.get(config.vote_weight, math.nan)))


def _penalty(candidate: Candidate, config: CoRAGConfig) -> float | None:
    """Return a candidate's score: one signal in its own unit, else minus the sum of log-probabilities."""
    values = [candidate.signals.get(name, math.nan) for name in config.signals]
    if len(values) == 1:
        found = -SIGNALS[config.signals[0]].score(values[0])
    else:
        found = -sum(map(log_probability, config.signals, values))
        found = math.nan if math.isinf(found) else found  # a factor of 0, as of no votes
    return None if math.isnan(found) else found  # not a number: no score


def log_probability(name: Signal, value: float) -> float:
    """Return a signal's value as a log-probability; one that is no number has probability 0."""
    return -math.inf if math.isnan(value) else SIGNALS[name].log_probability(value)


async def refusal_log_likelihood(chain: Chain, tools: Tools, config: CoRAGConfig, *, path: str = "") -> float:
    """Test time: mean log-likelihood per token of the refusal sentence and end of turn, given the chain.

    Lower is better: a chain that answers the question makes "No relevant information found" unlikely (paper,
    section 3.3, the penalty score; released code, ``_eval_single_path``).
    """
    prompt = refusal_prompt(tools.question.text, chain, config)
    prompt = fit_hop_prompt(prompt, tools.count_tokens, config)
    target = continuation(prompt, config.refusal)
    return (await tools.score(prompt, target, role="score", end_of_turn=True, path=path)).mean


def votes(answers: Sequence[str], weights: Sequence[float]) -> list[float]:
    """For each answer, what all that are the same after normalising weigh together; higher is better.

    Blank ones have no votes. Weights of 1 need no log-probabilities (self-consistency, Wang et al. 2023);
    with others it is the weighted vote of verifiers (Li et al. 2023).
    """
    spelled = [normalize_answer(answer) for answer in answers]
    counts = dict.fromkeys(spelled, 0.0)
    for answer, weight in zip(spelled, weights, strict=True):
        counts[answer] += weight if answer else 0.0
    return [counts[answer] for answer in spelled]


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

    In training of the gold answer, in ranking (``likelihood``) of the chain's own. Of several the likeliest
    counts. Paper, section 3.1; its threshold of -0.05 is on the mean per token.
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
