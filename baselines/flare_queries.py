"""FLARE's two ways from an unsure sentence to search queries (Jiang et al. 2023, section 3.2.2)."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import TypeAlias

from baselines.flare_config import FLAREConfig
from core.tools import Tools

Token: TypeAlias = tuple[str, float]
"""A token's text and its natural log-probability."""

SPAN_GAP = 5  # released code: unsure tokens this near to each other, in tokens, belong to one span


def masked(tokens: Sequence[Token], beta: float) -> str:
    """Implicit query: the sentence without the tokens whose probability is at most ``beta``.

    "" if none is left.

    >>> masked([("Emma", -0.1), (" died", -0.2), (" in", -0.1), (" 1817", -3.0)], 0.4)
    'Emma died in'
    """
    kept = (text if math.exp(logprob) > beta or not text else " " for text, logprob in tokens)
    return " ".join("".join(kept).split())


def unsure_spans(tokens: Sequence[Token], beta: float) -> list[str]:
    """Return the spans between tokens of probability ``beta`` or less that are near each other, but for mere
    punctuation.

    >>> unsure_spans([("In", -0.1), (" June", -2.0), (" 1817", -3.0), (" Emma", -0.1)], 0.4)
    ['June 1817']
    """
    spans: list[tuple[int, int]] = []
    for position in (i for i, (_, logprob) in enumerate(tokens) if math.exp(logprob) <= beta):
        goes_on = bool(spans) and position - spans[-1][1] < SPAN_GAP
        first = spans.pop()[0] if goes_on else position
        spans.append((first, position))
    texts = ["".join(text for text, _ in tokens[first : last + 1]).strip() for first, last in spans]
    return [text for text in texts if text.strip(string.punctuation)]


async def questions(
    tokens: Sequence[Token], written: str, tools: Tools, config: FLAREConfig, *, path: str
) -> list[str]:
    """Explicit queries: for each unsure span a question that it answers.

    The sentence itself if no token is so unsure.

    ``written``: the answer so far with the sentence at its end. A reply that is no question is not searched
    for (released code).
    """
    spans = unsure_spans(tokens, config.beta)
    if not spans:
        return ["".join(text for text, _ in tokens).strip()]
    template, limit = config.question_template(), config.max_question_tokens
    replies = []
    for number, span in enumerate(spans, 1):
        prompt = template.render({"text": written, "span": span})
        reply = await tools.generate(prompt, role="question", max_tokens=limit, path=f"{path}/span {number}")
        replies.append(reply.text.strip().partition("\n")[0])
    return [reply for reply in replies if reply.endswith("?")]
