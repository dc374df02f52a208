"""Prompted Self-RAG's verdicts: short replies, read as the values that the paper gives to the reflection
tokens in their place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from baselines.self_rag_critique import SUPPORT, UTILITY, Critique
from baselines.self_rag_prompted_config import SelfRAGPromptedConfig, Verdict
from core.prompting.prompt import Segment
from core.prompting.render import render_passages
from core.prompting.template import Template
from core.tools import Tools
from core.types import Hit

VERDICT_TOKENS = 8
_YES_NO = {"yes": 1.0, "no": 0.0}
_WORDS: dict[Verdict, Mapping[str, float]] = {
    "retrieve": _YES_NO,
    "relevance": _YES_NO,
    "support": {"fully": SUPPORT[0], "partially": SUPPORT[1], "no": SUPPORT[2], "not": SUPPORT[2]},
    "utility": dict(zip("12345", UTILITY, strict=True)),
}


def read_verdict(name: Verdict, reply: str) -> float | None:
    """Return what the first word of a reply that can be a verdict is worth, None if there is none.

    >>> read_verdict("support", "Not fully."), read_verdict("utility", "4/5"), read_verdict("relevance", "Hm.")
    (0.0, 0.5, None)
    """
    words = _WORDS[name]
    found = re.search(rf"\b({'|'.join(words)})\b", reply.lower())
    return None if found is None else words[found.group()]


async def verdict(
    name: Verdict,
    values: Mapping[str, str | Sequence[Segment]],
    tools: Tools,
    config: SelfRAGPromptedConfig,
    *,
    place: str,
) -> float | None:
    """Ask for a verdict and return its value, None if the reply is none."""
    prompt = config.prompt(name).render(values)
    reply = await tools.generate(prompt, role=name, max_tokens=VERDICT_TOKENS, path=place)
    return read_verdict(name, reply.text)


Asked: TypeAlias = tuple[Verdict, Mapping[str, str | Sequence[Segment]]]
"""A verdict to ask for, and the values of its prompt's fields."""


def to_ask(hit: Hit, written: str, sentence: str, query: str, config: SelfRAGPromptedConfig) -> list[Asked]:
    """List what is asked about a sentence that was written from a passage; what has no weight is not."""
    to_relate = show_source(hit, config.prompt("relevance"), config)
    to_support = show_source(hit, config.prompt("support"), config)
    asked: list[tuple[float, Asked]] = [
        (config.w_rel, ("relevance", {"query": query, "passages": to_relate, "written": written})),
        (config.w_sup, ("support", {"passages": to_support, "sentence": sentence.strip()})),
        (config.w_use, ("utility", {"query": query, "written": (written + sentence).strip()})),
    ]
    return [one for weight, one in asked if weight]


def most_critique_tokens(hit: Hit, written: str, tools: Tools, config: SelfRAGPromptedConfig) -> int:
    """Return what judging a sentence may cost at most."""
    most = config.max_segment_tokens + VERDICT_TOKENS
    asked = to_ask(hit, written, "", tools.question.text, config)
    return sum(tools.cost(config.prompt(name).render(fields), most) for name, fields in asked)


async def criticise(
    hit: Hit, written: str, sentence: str, tools: Tools, config: SelfRAGPromptedConfig, *, place: str
) -> tuple[Critique, int]:
    """Judge a sentence that was written from a passage (ISREL, ISSUP, ISUSE).

    Return how many verdicts could not be read too.

    ``written``: the answer before the sentence.
    """
    values = {
        name: await verdict(name, fields, tools, config, place=place)
        for name, fields in to_ask(hit, written, sentence, tools.question.text, config)
    }
    critique = Critique(*(values.get(name) or 0.0 for name in ("relevance", "support", "utility")))
    return critique, list(values.values()).count(None)


def show_source(hit: Hit | None, template: Template, config: SelfRAGPromptedConfig) -> list[Segment]:
    """Write the passage, or that there is none."""
    return render_passages([hit.passage] if hit else [], template, config.max_shown_words, goes_first="last")
