"""What chains can be ranked by, and which options of it go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from core.errors import ConfigError, nearest

if TYPE_CHECKING:
    from corag.config import CoRAGConfig

Signal = Literal["refusal", "refusals", "vote", "verifier", "likelihood", "probability"]
"""A measure of a chain: ``CoRAGConfig.rank_by`` says what each is."""

OF_ANSWERS: frozenset[Signal] = frozenset({"vote", "verifier", "likelihood"})  # not of chains alone
SCORED: frozenset[Signal] = frozenset({"refusal", "verifier", "likelihood"})  # by log-probabilities


def check_signals(config: CoRAGConfig) -> None:
    """Refuse rankings that cannot be made, and options of rankings that would do nothing: ConfigError."""
    for name in config.signals:
        if name not in get_args(Signal):
            raise ConfigError(
                f"corag's rank_by is '{config.rank_by}', but '{name}' ranks nothing: "
                f"{nearest(name, get_args(Signal))} Several are joined by a plus."
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
