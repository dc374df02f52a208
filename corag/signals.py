"""What chains can be ranked by, a row of SIGNALS each, and which options of it go together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.errors import ConfigError, nearest

if TYPE_CHECKING:
    from corag.config import CoRAGConfig

Signal = Literal["refusal", "refusals", "vote", "verifier", "likelihood", "probability"]
"""A measure of a chain: ``CoRAGConfig.rank_by`` says what each is, ``rank.signal_of`` measures it."""


@dataclass(frozen=True)
class SignalKind:
    """What is to be known of a signal.

    Attributes:
        log_probability: turns its value into the logarithm of something like a probability that the chain is
            right, so that signals of different units may be multiplied, or weigh votes.
        lower_is_better: of its value.
        of_answer: it is of the chain's answer, not of the chain alone.
        scored: the engine is asked for log-likelihoods to measure it.
        log_odds: its value is log P(right) - log P(wrong), so that its calibration can be told.
    """

    log_probability: Callable[[float], float]
    lower_is_better: bool = False
    of_answer: bool = False
    scored: bool = False
    log_odds: bool = False

    def score(self, value: float) -> float:
        """Return a value as what is ranked by: higher is better."""
        return -value if self.lower_is_better else value


def _itself(value: float) -> float:
    return value


def _not_refused(value: float) -> float:
    """That the next token is not the refusal's, on average."""
    return math.log1p(-min(math.exp(value), 1 - 1e-12))


def _share_of_votes(value: float) -> float:
    """But for a constant, which is the same for all of a question's chains."""
    return math.log(value) if value > 0 else -math.inf


def _yes(value: float) -> float:
    """P(Yes) of Yes and No."""
    return min(value, 0.0) - math.log1p(math.exp(-abs(value)))


SIGNALS: Mapping[Signal, SignalKind] = {
    "refusal": SignalKind(_not_refused, lower_is_better=True, scored=True),
    # One of the chain's hops and one more.
    "refusals": SignalKind(lambda value: -math.log1p(value), lower_is_better=True),
    "vote": SignalKind(_share_of_votes, of_answer=True),
    "verifier": SignalKind(_yes, of_answer=True, scored=True, log_odds=True),
    "likelihood": SignalKind(_itself, of_answer=True, scored=True),
    "probability": SignalKind(_itself),
}


def check_signals(config: CoRAGConfig) -> None:
    """Refuse rankings that cannot be made, and options of rankings that would do nothing: ConfigError."""
    for name in config.signals:
        if name not in SIGNALS:
            hint = nearest(name, SIGNALS)
            raise ConfigError(
                f"corag's rank_by is '{config.rank_by}', but '{name}' ranks nothing: "
                f"{hint}{'' if hint.endswith('?') else '.'} Several are joined by a plus."
            )
    if "vote" in config.noted_signals:
        raise ConfigError(
            "corag's noted_signals has 'vote', which is of all chains: it can be counted later."
        )
    if config.vote_weight != "one" and "vote" not in config.signals:
        raise ConfigError(
            f"corag's vote_weight is '{config.vote_weight}', but rank_by '{config.rank_by}' does not vote: "
            "give --corag.rank_by vote, or leave vote_weight out."
        )
    if "vote" in config.signals and config.strategy == "tree":
        raise ConfigError(
            f"rank_by '{config.rank_by}' compares final answers, which strategy 'tree' does not have on "
            "the way: use 'refusal', 'refusals' or 'verifier', or strategy 'best_of_n'."
        )
    _check_adaptive_vote(config)


def _check_adaptive_vote(config: CoRAGConfig) -> None:
    if not 0.5 < config.vote_sure < 1:
        raise ConfigError(
            f"corag's vote_sure is a probability above 0.5 and below 1, but it is {config.vote_sure}."
        )
    if config.strategy != "adaptive" or "vote" not in config.signals:
        if config.vote_sure != type(config).vote_sure:
            raise ConfigError(
                "corag's vote_sure is for strategy 'adaptive' with rank_by 'vote', but they are "
                f"'{config.strategy}' and '{config.rank_by}'."
            )
        return
    if config.rank_by != "vote" or config.vote_weight != "one":
        raise ConfigError(
            f"rank_by '{config.rank_by}' with vote_weight '{config.vote_weight}' weighs votes, but strategy "
            "'adaptive' counts them to know when to stop: use rank_by 'vote' alone, or strategy 'best_of_n'."
        )
    if config.unsure_above is not None:
        raise ConfigError(
            "corag's unsure_above is a score's limit, but an adaptive vote has no scores: give "
            "--corag.vote_sure instead."
        )
