"""What both variants of Self-RAG share: judged segments, and how judgements are weighed."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from annotated_types import Ge

from corag.core.method import MethodConfig
from corag.core.tools import Tools

# Asai et al., ICLR 2024, section 3.3, and the released code.
SUPPORT = (1.0, 0.5, 0.0)
"""What fully, partially and not supported are worth (ISSUP)."""
UTILITY = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""What a usefulness of 1 to 5 is worth (ISUSE)."""

Opening = TypeVar("Opening")
Result = TypeVar("Result")


@dataclass(frozen=True)
class CritiqueConfig(MethodConfig):
    """Options of both variants."""

    k: Annotated[int, Ge(1)] = 5
    """passages of each search; the model goes on once from each of them (also ``top_k``)."""

    w_rel: float = 1.0
    """weight of ISREL, whether the passage is relevant, from 0 to 1."""

    w_sup: float = 1.0
    """weight of ISSUP, whether the passage supports what was written, from 0 to 1."""

    w_use: float = 0.5  # released code: its functions and README; its command line says 1.0
    """weight of ISUSE, whether that is useful, from -1 to 1."""

    sequence_score: bool = True
    """add the likelihood of what was written, as its mean probability per token."""

    max_shown_words: Annotated[int, Ge(1)] = 350
    """passages are cut to so many words in prompts."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_paragraph_words": "max_shown_words"}


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
    """Weigh a segment (equations 3 and 4). ``tokens``: its tokens with their natural log-probabilities."""
    critique_score = (
        config.w_rel * critique.relevance + config.w_sup * critique.support + config.w_use * critique.utility
    )
    if not config.sequence_score or not tokens:
        return critique_score
    # The mean per token, so that a long segment is not worth less for its length.
    return critique_score + math.exp(sum(logprob for _, logprob in tokens) / len(tokens))


async def from_each(
    openings: Sequence[Opening],
    extend: Callable[[Opening, Tools, str], Coroutine[Any, Any, Result]],
    most: Callable[[Opening, Tools], int],
    tools: Tools,
    path: str,
) -> list[Result]:
    """Go on from all openings at the same time, or from as many as the budget allows, then from others.

    At least one gets what is left, for an answer cut short is better than none. What cannot be paid for is
    left out.

    Args:
        openings: what to go on from, best first.
        extend: is given an opening, tools for it and its path in the method.
        most: the tokens that this may cost at most.
        tools: the question's.
        path: of all of them in the method.

    Raises:
        BudgetExhaustedError: not one could be paid for.
    """
    return await tools.fan_out_certain(
        list(enumerate(openings, 1)),
        lambda entry, branch: extend(entry[1], branch, f"{path}/candidate {entry[0]}"),
        lambda entry: most(entry[1], tools),
        at_least_one=True,
    )
