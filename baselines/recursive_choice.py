"""Choosing recursive RAG's mode for a question: by asking the model, or by words of the question."""

from __future__ import annotations

import re

from baselines.recursive_concluding import to_hold_back
from baselines.recursive_config import Mode, RecursiveConfig
from baselines.recursive_trail import Trail
from core.errors import BudgetExhaustedError
from core.tools import Tools
from core.types import Question

_NAMES: dict[Mode, str] = {
    "simple": "simple",
    "recursive": "recursive",
    "multi_hop": r"multi[ _-]?hop",
    "self_query": r"self[ _-]?query(?:ing)?",
    "decompose": r"decompos(?:e|ed|ition|ing)",
}
_MODE = re.compile(
    r"\b(?:" + "|".join(f"(?P<{name}>{spelling})" for name, spelling in _NAMES.items()) + r")\b", re.I
)
_LEADS = re.compile(r"\W*(?:(?:choice|mode|answer)\W+)?", re.I)
_CHAINED = re.compile(
    r"\brelationship between\b|\bcompar(?:e|es|ed|ing|ison)\b|\bwhat led to\b|\bhow (?:does|do|did) .+ affect\b",
    re.I,
)
_LONG = 20  # words
_CHOICE_TOKENS = 16


async def choose_mode(question: Question, trail: Trail, tools: Tools, config: RecursiveConfig) -> Mode:
    """Return the mode for a question.

    A choice that cannot be read, or afforded, is ``default_mode``, and counted.
    """
    if config.choose_by == "words":
        return mode_by_words(question.text)
    prompt = config.prompt("mode").render({"query": question.text})
    try:
        with tools.holding(to_hold_back(question, trail, tools, config)):
            reply = await tools.generate(prompt, role="mode", max_tokens=_CHOICE_TOKENS, path="mode")
    except BudgetExhaustedError:
        trail.fallbacks += 1
        return config.default_mode
    mode = parse_mode(reply.text)
    if mode is None:
        trail.malformed += 1
        trail.fallbacks += 1
    return mode or config.default_mode


def parse_mode(reply: str) -> Mode | None:
    """Return the mode that a reply begins with, or the only one that it names; None if there is no such mode.

    >>> [parse_mode(reply) for reply in ("**Multi-hop**", "I would take self_query.", "simple, not recursive", "either")]
    ['multi_hop', 'self_query', 'simple', None]
    """
    named: list[tuple[int, Mode]] = [
        (match.start(), mode) for match in _MODE.finditer(reply) for mode in _NAMES if match[mode]
    ]
    start = _LEADS.match(reply)
    first = [mode for place, mode in named if start is not None and place == start.end()]
    if first:
        return first[0]
    return named[0][1] if len({mode for _, mode in named}) == 1 else None


def mode_by_words(text: str) -> Mode:
    """Choose as the tutorial does: phrases of comparison or cause, more than 20 words, more than one question
    mark.

    >>> mode_by_words("How does Rainfall affect Wheat?")
    'multi_hop'
    """
    if _CHAINED.search(text):
        return "multi_hop"
    if len(text.split()) > _LONG:
        return "recursive"
    return "self_query" if text.count("?") > 1 else "simple"
