"""Signals: what chains can be ranked by, and measured for. One object each, and the table of them.

A new signal is one :class:`Signal` here and its test; ``--corag.rank_by``, ``--corag.measure``, budgets and
'corag table --ceiling' know it by its name. Log-likelihoods are of token ids from the engine's own tokenizer,
so they suit any model.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from corag.chains.chain import Chain
from corag.chains.prompting import ChainOptions, continuation, refusal_prompt
from corag.core.protocols import Ability
from corag.core.tools import Tools
from corag.core.types import Hit


@dataclass(frozen=True, slots=True)
class Cost:
    """What measuring a signal may cost, about.

    Attributes:
        tokens: for the chain as it is.
        prompts: how many prompts show the chain, and so grow with each hop that it will have.
    """

    tokens: int = 0
    prompts: int = 0


def _free(chain: Chain, hits: Sequence[Hit], tools: Tools, config: ChainOptions) -> Cost:
    return Cost()


@dataclass(frozen=True)
class Signal:
    """A measure of a chain.

    Attributes:
        name: as options and traces spell it.
        log_probability: turns its value into the logarithm of something like a probability that the chain is
            right, so that signals of different units may be multiplied.
        measure: returns its value for a chain, in its own unit, None where there is none. A
            signal without it is counted among all chains of a question.
        cost: what ``measure`` may cost. Searches find passages like the hits.
        lower_is_better: of its value.
        of_answer: it is of the chain's answer, not of the chain alone.
        needs: what the model must be able to do.
    """

    name: str
    log_probability: Callable[[float], float]
    measure: Callable[[Chain, Tools, ChainOptions, str], Awaitable[float | None]] | None = None
    cost: Callable[[Chain, Sequence[Hit], Tools, ChainOptions], Cost] = _free
    lower_is_better: bool = False
    of_answer: bool = False
    needs: frozenset[Ability] = frozenset()

    def to_score(self, value: float) -> float:
        """Return a value as what is ranked by: higher is better."""
        return -value if self.lower_is_better else value


async def refusal_log_likelihood(chain: Chain, tools: Tools, config: ChainOptions, path: str = "") -> float:
    """Return the mean log-likelihood per token of the refusal sentence and end of turn, given the chain.

    Lower is better: a chain that answers the question makes "No relevant information found" unlikely (paper,
    section 3.3, the penalty score; released code, ``_eval_single_path``).
    """
    prompt = refusal_prompt(tools.question.text, chain, config)
    prompt = config.conventions.fit_hop(prompt, tools.count_tokens)
    target = continuation(prompt, config.refusal)
    return (await tools.score(prompt, target, role="score", end_of_turn=True, path=path)).mean


def _refusal_cost(chain: Chain, hits: Sequence[Hit], tools: Tools, config: ChainOptions) -> Cost:
    prompt, end_of_turn = refusal_prompt(tools.question.text, chain, config), 1
    return Cost(tools.cost(prompt, tools.count_tokens(config.refusal) + end_of_turn), prompts=1)


def _not_refused(value: float) -> float:
    """Return log P of the next token not being the refusal's, on average."""
    return math.log1p(-min(math.exp(value), 1 - 1e-12))


async def _count_refusals(chain: Chain, tools: Tools, config: ChainOptions, path: str) -> float:
    return float(chain.refusals)


def _few_refusals(value: float) -> float:
    """Return log 1 / (refusals + 1)."""
    return -math.log1p(value)


def _share_of_votes(value: float) -> float:
    """Return the log share of votes but for a constant, which is the same for all of a question's chains."""
    return math.log(value) if value > 0 else -math.inf


async def _read_probability(chain: Chain, tools: Tools, config: ChainOptions, path: str) -> float | None:
    return chain.log_probability


def _itself(value: float) -> float:
    return value


_SCORES = frozenset({Ability.SCORES})

SIGNALS: Mapping[str, Signal] = {
    signal.name: signal
    for signal in (
        Signal(
            "refusal", _not_refused, refusal_log_likelihood, _refusal_cost, True, needs=_SCORES
        ),
        Signal("refusals", _few_refusals, _count_refusals, lower_is_better=True),
        # Self-consistency (Wang et al. 2023): of all chains, so no single one has it.
        Signal("vote", _share_of_votes, of_answer=True),
        Signal("probability", _itself, _read_probability, needs=frozenset({Ability.LOGPROBS})),
    )
}  # fmt: skip
