"""What Self-RAG and its prompted variant share: judged segments, and how judgements are weighed (Asai et al.
2024, section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, TypeVar

from core.errors import BudgetExhaustedError, ConfigError
from core.gather import gather
from core.method import MethodConfig
from core.tools import Tools

PROMPTS = Path(__file__).parent / "prompts"

SUPPORT = (1.0, 0.5, 0.0)
"""What fully, partially and not supported are worth (ISSUP)."""
UTILITY = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""What a usefulness of 1 to 5 is worth (ISUSE)."""

Opening = TypeVar("Opening")
Result = TypeVar("Result")


@dataclass(frozen=True)
class CritiqueConfig(MethodConfig):
    """Options of both variants.

    Attributes:
        k: passages of each search; the model goes on once from each of them (also ``top_k``).
        w_rel: weight of ISREL, whether the passage is relevant, from 0 to 1.
        w_sup: weight of ISSUP, whether the passage supports what was written, from 0 to 1.
        w_use: weight of ISUSE, whether that is useful, from -1 to 1.
        sequence_score: add the likelihood of what was written, as its mean probability per token.
        max_shown_words: passages are cut to so many words in prompts.
    """

    k: int = 5
    w_rel: float = 1.0
    w_sup: float = 1.0
    w_use: float = 0.5
    sequence_score: bool = True
    max_shown_words: int = 350

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_paragraph_words": "max_shown_words"}

    def __post_init__(self) -> None:
        if min(self.k, self.max_shown_words) < 1:
            raise ConfigError(
                f"k and max_shown_words must be at least 1, but they are {self.k} and {self.max_shown_words}."
            )


@dataclass(frozen=True, slots=True)
class Critique:
    """What the model makes of a segment and its passage: see :class:`CritiqueConfig` for the scales.

    What was not judged is 0.
    """

    relevance: float = 0.0
    support: float = 0.0
    utility: float = 0.0


@dataclass(frozen=True, slots=True)
class JudgedSegment:
    """A piece of the answer, with the passage that it was written from ("" for none)."""

    text: str
    passage_id: str
    critique: Critique
    score: float


def segment_score(critique: Critique, tokens: Sequence[tuple[str, float]], config: CritiqueConfig) -> float:
    """Weigh a segment (equations 3 and 4). ``tokens``: its tokens with their log-probabilities."""
    weighed = (
        config.w_rel * critique.relevance + config.w_sup * critique.support + config.w_use * critique.utility
    )
    if not config.sequence_score or not tokens:
        return weighed
    return weighed + math.exp(sum(logprob for _, logprob in tokens) / len(tokens))


async def from_each(
    openings: Sequence[Opening],
    extend: Callable[[Opening, Tools, str], Awaitable[Result]],
    most: Callable[[Opening, Tools], int],
    tools: Tools,
    place: str,
) -> list[Result]:
    """Go on from all openings at the same time, or, if the budget is too small for that, from the first ones,
    then from others.

    ``extend`` is given an opening, tools for it and its place in the method; ``most``: the tokens that this
    may cost at most. As many openings get equal shares of the budget as these are certain to suffice for; if
    they are not even for one, one gets it all. What cannot be paid for is left out. Raises
    :class:`BudgetExhaustedError` if that is all of them.
    """

    async def attempt(opening: Opening, branch: Tools, number: int) -> Result | None:
        try:
            return await extend(opening, branch, f"{place}/candidate {number}")
        except BudgetExhaustedError:
            return None

    kept: list[Result] = []
    done = 0
    while done < len(openings) and ((count := certain(openings[done:], most, tools)) or not kept):
        batch = openings[done : done + max(1, count)]
        pairs = zip(batch, tools.branch(len(batch)), strict=True)
        results = await gather(
            attempt(opening, branch, number) for number, (opening, branch) in enumerate(pairs, done + 1)
        )
        kept += [result for result in results if result is not None]
        done += len(batch)
    if not kept:
        raise BudgetExhaustedError(f"question '{tools.question.id}' has too few tokens left to go on.")
    return kept


def certain(openings: Sequence[Opening], most: Callable[[Opening, Tools], int], tools: Tools) -> int:
    """Return how many openings, from the first on, equal shares of the budget are certain to pay for."""
    left = tools.left
    if left is None:
        return len(openings)
    dearest = accumulate((most(opening, tools) for opening in openings), max)
    return sum(number * cost <= left for number, cost in enumerate(dearest, 1))
