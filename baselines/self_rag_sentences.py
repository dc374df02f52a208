"""Prompted Self-RAG's sentences: each is written from a passage, if there is one, and judged."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from baselines.self_rag_critique import Critique, JudgedSegment, segment_score
from baselines.self_rag_prompted_config import SelfRAGPromptedConfig
from baselines.self_rag_verdicts import criticise, most_critique_tokens, show_source
from core.errors import BudgetExhaustedError
from core.prompting.prompt import Prompt
from core.sentences import sentence_end
from core.tools import Tools
from core.types import Hit


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence to go on with, and its passage; ``ended``: the model wrote nothing after it."""

    segment: JudgedSegment
    source: Hit | None
    ended: bool
    malformed: int


async def write(
    hit: Hit | None, tools: Tools, place: str, *, before: str, config: SelfRAGPromptedConfig
) -> Candidate:
    """Write the next sentence and, if it comes from a passage, judge it."""
    reply = await tools.generate(
        segment_prompt(tools.question.text, hit, before, config),
        role="segment",
        max_tokens=config.max_segment_tokens,
        logprobs=True,
        path=place,
    )
    completion = reply.completions[0]
    end = sentence_end(completion.text)
    text = completion.text[:end]
    critique, malformed = Critique(), 0
    if hit is not None and text:
        with suppress(BudgetExhaustedError):  # what can no longer be judged is kept all the same
            critique, malformed = await criticise(hit, before, text, tools, config, place=place)
    score = segment_score(critique, completion.tokens(end), config)
    ended = completion.finish_reason == "stop" and not completion.text[end:].strip()
    return Candidate(
        JudgedSegment(text, hit.passage.id if hit else "", critique, score), hit, ended, malformed
    )


def most_tokens(hit: Hit | None, tools: Tools, *, before: str, config: SelfRAGPromptedConfig) -> int:
    """Return what a sentence and its critique may cost at most."""
    writing = tools.cost(segment_prompt(tools.question.text, hit, before, config), config.max_segment_tokens)
    return writing + (most_critique_tokens(hit, before, tools, config) if hit else 0)


def segment_prompt(query: str, hit: Hit | None, before: str, config: SelfRAGPromptedConfig) -> Prompt:
    """Write the answer so far with a passage, to be continued."""
    template = config.prompt("segment")
    return template.render(
        {"query": query, "written": before, "passages": show_source(hit, template, config)}
    )
