"""Self-RAG with a model that writes reflection tokens (Asai et al., ICLR 2024, arXiv 2310.11511).

The model says by a token whether it wants passages, goes on once from each of them, and judges each
continuation; what it thinks, as probabilities of reflection tokens, decides which paths are kept. Presets:
"short_form", "long_form", as in the released scripts.

It needs a model trained for it, such as selfrag/selfrag_llama2_7b with ``--model.chat no``; for others there
is ``self_rag_prompted``, which is another method. Known differences: probabilities where the released code
divides log-probabilities; a path is worth its segments' mean (there their product, and in the long form
without utility); finished paths stay in the beam; no path sees its sibling's text. The paper counts an answer
as right if it holds the gold one, so exact match is lower.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from baselines.self_rag_config import SelfRAGConfig
from baselines.self_rag_critique import Critique, JudgedSegment, from_each, segment_score
from baselines.self_rag_tokens import criticise, most_critique_tokens, segment_end, wants_passages
from core.errors import BudgetExhaustedError
from core.text import normalize_answer
from core.tools import Tools
from core.types import Answer, Hit, Question


@dataclass(frozen=True, slots=True)
class Path:
    """An answer so far.

    ``stopped``: "" if it goes on, from passages, else "end", "max_segments" or "budget".
    """

    segments: tuple[JudgedSegment, ...] = ()
    stopped: str = ""

    @property
    def text(self) -> str:
        """Its segments with their reflection tokens, without passages: all that the next one's prompt shows
        of them.
        """
        return "".join(segment.text for segment in self.segments)

    @property
    def score(self) -> float:
        """The mean of its segments' scores, so that paths of different lengths compare.

        0 if there are none.
        """
        return sum(segment.score for segment in self.segments) / max(1, len(self.segments))


@dataclass(frozen=True, slots=True)
class SelfRAGAnswer(Answer):
    """Self-RAG's result. ``steps``: segments of the chosen path, which are ``segments``.

    ``stopped``: "end" (nothing more was written), "max_segments" or "budget". ``retrieved``: whether the
    question was found to want passages. ``compared``: continuations that were judged.
    """

    retrieved: bool = False
    compared: int = 0
    segments: tuple[JudgedSegment, ...] = ()


async def self_rag(question: Question, tools: Tools, config: SelfRAGConfig) -> SelfRAGAnswer:
    """Answer one question with Self-RAG (paper, Algorithm 1 and section 3.3)."""
    beam = pool = [Path()]
    found: dict[str, tuple[Hit, ...]] = {}
    retrieved, compared, budget = False, 0, ""
    try:
        # Line 2: predict Retrieve. Later segments begin where the model wanted passages.
        retrieved = await wants_passages("", tools, config, place="question")
        while going := [path for path in beam if not path.stopped]:
            number = len(going[0].segments) + 1
            # Line 4: passages for each path; a path without any goes on by itself (line 8).
            openings: list[tuple[Path, Hit | None]] = []
            for path in going:
                hits = await passages_for(path, found, tools, config) if retrieved or path.segments else ()
                openings += [(path, hit) for hit in hits or (None,)]
            # Lines 5, 6 and 9: from each passage a continuation, and its critique.
            grow, most = partial(extend, config=config), partial(most_tokens, config=config)
            grown = await from_each(openings, grow, most, tools, f"segment {number}")
            compared += len(grown)
            # Line 7: the best are kept.
            pool = [path for path in beam if path.stopped] + grown
            beam = sorted(pool, key=lambda path: rank(path, config), reverse=True)[: config.beam]
    except BudgetExhaustedError:
        budget = "budget"
    best = most_voted(pool, config) if config.aggregate == "sum" else beam[0]
    ids = dict.fromkeys(hit.passage.id for hits in found.values() for hit in hits)
    stopped = budget or best.stopped
    return SelfRAGAnswer(
        config.spoken(best.text), tuple(ids), len(best.segments), stopped, retrieved, compared, best.segments
    )


async def passages_for(
    path: Path, found: dict[str, tuple[Hit, ...]], tools: Tools, config: SelfRAGConfig
) -> tuple[Hit, ...]:
    """Search for a path, unless the same query has been searched for."""
    newest = (
        config.spoken(path.segments[-1].text) if path.segments and config.search_with == "segment" else ""
    )
    query = f"{tools.question.text} {newest}".strip()
    if query not in found:
        found[query] = await tools.search(query, k=config.k, path=f"segment {len(path.segments) + 1}")
    return found[query]


async def extend(
    opening: tuple[Path, Hit | None], tools: Tools, place: str, *, config: SelfRAGConfig
) -> Path:
    """Return a path with one more segment, written from a passage and judged."""
    path, hit = opening
    before = path.text + config.opening(hit.passage if hit else None)
    last = len(path.segments) + 1 >= config.max_segments
    reply = await tools.generate(
        config.prompt_at(tools.question.text, before),
        role="segment",
        max_tokens=config.max_segment_tokens,
        stop=config.passage_tokens[:1],  # passages are ours to give
        logprobs=True,
        special_tokens=True,
        path=place,
    )
    completion = reply.completions[0]
    end, stopped, critique = len(completion.text), "budget", Critique()
    with suppress(BudgetExhaustedError):  # what can no longer be judged is kept all the same
        end, goes_on = await segment_end(before, completion.text, tools, config, last=last, place=place)
        stopped = "end" if not goes_on else "max_segments" if last else ""
        critique = await criticise(
            before, completion.text[:end], tools, config, with_passage=hit is not None, place=place
        )
    score = segment_score(critique, completion.tokens(end), config)
    segment = JudgedSegment(completion.text[:end], hit.passage.id if hit else "", critique, score)
    return Path((*path.segments, segment), stopped)


def most_tokens(opening: tuple[Path, Hit | None], tools: Tools, *, config: SelfRAGConfig) -> int:
    """Return what a segment and its critique may cost at most."""
    path, hit = opening
    before = path.text + config.opening(hit.passage if hit else None)
    last = len(path.segments) + 1 >= config.max_segments
    writing = tools.cost(config.prompt_at(tools.question.text, before), config.max_segment_tokens)
    return writing + most_critique_tokens(before, tools, config, last=last, with_passage=hit is not None)


def rank(path: Path, config: SelfRAGConfig) -> tuple[bool, float]:
    """Order paths: one that says nothing comes after all others."""
    return bool(config.spoken(path.text)), path.score


def most_voted(pool: Sequence[Path], config: SelfRAGConfig) -> Path:
    """Return the best path to the answer whose paths have the highest score together (released code, closed
    tasks).
    """
    answers = [normalize_answer(config.spoken(path.text)) for path in pool]
    totals: dict[str, float] = {}
    for answer, path in zip(answers, pool, strict=True):
        totals[answer] = totals.get(answer, 0.0) + path.score
    _, best = max(
        zip(answers, pool, strict=True), key=lambda one: (bool(one[0]), totals[one[0]], one[1].score)
    )
    return best
