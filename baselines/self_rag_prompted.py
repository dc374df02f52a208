"""Self-RAG's decisions asked of any instruction model: a prompted variant, not the method of the paper (Asai et al., ICLR 2024).

Whether to look something up, which passage to go on from, whether it supports what was written and how useful that is are asked in
prompts of their own, where the paper's model writes reflection tokens (``self_rag``). Steps and weights are the paper's.

Known differences: verdicts are words, not probabilities, so there is no threshold; one that cannot be read counts 0, or as a wish
to look up; a segment is one sentence; the best one is kept, without a beam; one without a passage is not judged; a stated answer
ends the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from baselines.self_rag_critique import Critique, JudgedSegment, from_each, segment_score
from baselines.self_rag_prompted_config import SelfRAGPromptedConfig
from baselines.self_rag_verdicts import criticise, passage_segments, verdict
from core.errors import BudgetExhaustedError
from core.sentences import sentence_end
from core.text import extract_answer, stated_answer
from core.tools import Tools
from core.types import Answer, Hit, Question


@dataclass(frozen=True, slots=True)
class SelfRAGPromptedAnswer(Answer):
    """Prompted Self-RAG's result. ``steps``: its sentences, which are ``segments``.

    ``stopped``: "answer" (the newest sentence states one), "end" (of the model's turn), "max_segments", "empty_generation" or
    "budget". ``searched``: sentences that passages were searched for. ``compared``: sentences that were written. ``malformed``:
    verdicts that could not be read.
    """

    searched: int = 0
    compared: int = 0
    malformed: int = 0
    segments: tuple[JudgedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence to go on with; ``ended``: the model wrote nothing after it."""

    segment: JudgedSegment
    ended: bool
    malformed: int


async def self_rag_prompted(question: Question, tools: Tools, config: SelfRAGPromptedConfig) -> SelfRAGPromptedAnswer:
    """Answer one question with Self-RAG's steps (paper, Algorithm 1), each decision asked for."""
    segments: list[JudgedSegment] = []
    found: dict[str, None] = {}
    written = stopped = ""
    searched = compared = malformed = 0
    try:
        while not stopped:
            place = f"segment {len(segments) + 1}"
            # Line 2: Retrieve?
            wish: float | None = 1.0
            if config.retrieval == "adaptive":
                values = {"query": question.text, "written": written}
                wish = await verdict("retrieve", values, tools, config, place=place)
                malformed += wish is None
            # Line 4: passages for the question and the newest sentence.
            hits: tuple[Hit, ...] = ()
            if wish != 0:
                newest = segments[-1].text.strip() if segments else ""
                hits = await tools.search(f"{question.text} {newest}".strip(), k=config.k, path=place)
                found |= dict.fromkeys(hit.passage.id for hit in hits)
                searched += 1
            # Lines 5, 6, 8: from each passage a sentence, and its critique.
            openings: Sequence[Hit | None] = hits or (None,)
            candidates = await from_each(openings, partial(write, before=written, config=config), tools, place)
            compared += len(candidates)
            malformed += sum(candidate.malformed for candidate in candidates)
            # Line 7: the best is kept.
            best = max(candidates, key=lambda candidate: (bool(candidate.segment.text), candidate.segment.score))
            segments.append(best.segment)
            written = (written + best.segment.text).lstrip()
            stopped = exit_reason(best, len(segments), config)
    except BudgetExhaustedError:
        stopped = "budget"
    answer = extract_answer(written)
    counts = (searched, compared, malformed)
    return SelfRAGPromptedAnswer(answer, tuple(found), len(segments), stopped, *counts, tuple(segments))


async def write(hit: Hit | None, tools: Tools, place: str, *, before: str, config: SelfRAGPromptedConfig) -> Candidate:
    """Write the next sentence and, if it comes from a passage, judge it."""
    template = config.prompt("segment")
    reply = await tools.generate(
        template.render(
            {"query": tools.question.text, "written": before, "passages": passage_segments(hit, template, config)}
        ),
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
        critique, malformed = await criticise(hit, before, text, tools, config, place=place)
    score = segment_score(critique, completion.tokens(end), config)
    ended = completion.finish_reason == "stop" and not completion.text[end:].strip()
    return Candidate(JudgedSegment(text, hit.passage.id if hit else "", critique, score), ended, malformed)


def exit_reason(newest: Candidate, count: int, config: SelfRAGPromptedConfig) -> str:
    """Say why the loop ends after the newest of ``count`` sentences, "" if it goes on."""
    text = newest.segment.text.strip()
    if not text:
        return "empty_generation"
    if stated_answer(text) is not None:
        return "answer"
    if newest.ended:
        return "end"
    return "max_segments" if count >= config.max_segments else ""
