"""Self-RAG's decisions asked of any instruction model: a prompted variant, not the method of the paper (Asai
et al., ICLR 2024).

Whether to look something up, which passage to go on from, whether it supports what was written and how useful
that is are asked in prompts of their own, where the paper's model writes reflection tokens (``self_rag``).
Steps and weights are the paper's.

Known differences: verdicts are words, not probabilities, so there is no threshold; one that cannot be read
counts 0, or as a wish to look up; a segment is one sentence; the best one is kept, without a beam; one
without a passage is not judged; a stated answer ends the loop; one that was not stated is asked for in the
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from baselines.forced_answer import conclude_chain, cued, written
from baselines.self_rag_critique import JudgedSegment, from_each
from baselines.self_rag_prompted_config import SelfRAGPromptedConfig
from baselines.self_rag_sentences import Candidate, most_tokens, segment_prompt, write
from baselines.self_rag_verdicts import verdict
from core.errors import BudgetExhaustedError
from core.prompting.prompt import Prompt
from core.prompting.shorten import reserve
from core.text import stated_answer
from core.tools import Tools
from core.types import Answer, Hit, Question


@dataclass(frozen=True, slots=True)
class SelfRAGPromptedAnswer(Answer):
    """Prompted Self-RAG's result. ``steps``: its sentences, which are ``segments``.

    ``stopped``: "answer" (the newest sentence states one), "end" (of the model's turn), "max_segments",
    "empty_generation" or "budget". ``searched``: sentences that passages were searched for. ``compared``:
    sentences that were written. ``malformed``: verdicts that could not be read.
    """

    searched: int = 0
    compared: int = 0
    malformed: int = 0
    segments: tuple[JudgedSegment, ...] = ()


async def self_rag_prompted(
    question: Question, tools: Tools, config: SelfRAGPromptedConfig
) -> SelfRAGPromptedAnswer:
    """Answer one question with Self-RAG's steps (paper, Algorithm 1), each decision asked for."""
    segments: list[JudgedSegment] = []
    found: dict[str, None] = {}
    stopped = ""
    searched = compared = malformed = 0
    source: Hit | None = None  # what the newest sentence was written from; before the first, the best passage

    def final(kept: Sequence[JudgedSegment]) -> Prompt:
        return segment_prompt(question.text, source, cued(kept), config)

    try:
        while not stopped:
            place = f"segment {len(segments) + 1}"
            before = written(segments)
            with tools.holding(
                reserve(final(segments), config.max_segment_tokens + config.max_answer_tokens, tools)
            ):
                # Line 2: Retrieve?
                wish: float | None = 1.0
                if config.retrieval == "adaptive":
                    values = {"query": question.text, "written": before}
                    wish = await verdict("retrieve", values, tools, config, place=place)
                    malformed += wish is None
                # Line 4: passages for the question and the newest sentence.
                hits: tuple[Hit, ...] = ()
                if wish != 0:
                    newest = segments[-1].text.strip() if segments else ""
                    hits = await tools.search(f"{question.text} {newest}".strip(), k=config.k, path=place)
                    found |= dict.fromkeys(hit.passage.id for hit in hits)
                    searched += 1
                    if not segments:
                        source = next(iter(hits), None)
                # Lines 5, 6, 8: from each passage a sentence, and its critique.
                go_on = partial(write, before=before, config=config)
                most = partial(most_tokens, before=before, config=config)
                candidates = await from_each(hits or (None,), go_on, most, tools, place)
            compared += len(candidates)
            malformed += sum(candidate.malformed for candidate in candidates)
            # Line 7: the best is kept.
            best = max(
                candidates, key=lambda candidate: (bool(candidate.segment.text), candidate.segment.score)
            )
            if not best.segment.text:
                stopped = "empty_generation"
                break
            segments.append(best.segment)
            source = best.source
            stopped = exit_reason(best, len(segments), config)
    except BudgetExhaustedError:
        stopped = "budget"
    answer = await conclude_chain(final, segments, stopped, tools, config)
    counts = (searched, compared, malformed)
    return SelfRAGPromptedAnswer(answer, tuple(found), len(segments), stopped, *counts, tuple(segments))


def exit_reason(newest: Candidate, count: int, config: SelfRAGPromptedConfig) -> str:
    """Say why the loop ends after the newest of ``count`` sentences, "" if it goes on."""
    text = newest.segment.text.strip()
    if stated_answer(text) is not None:
        return "answer"
    if newest.ended:
        return "end"
    return "max_segments" if count >= config.max_segments else ""
