"""Self-RAG's decisions asked of any instruction model: a prompted variant, not the method of the paper.

After Asai et al. (ICLR 2024, arXiv 2310.11511). Whether to look something up, which passage to go on from,
whether it supports what was written and how useful that is are asked in prompts of their own, where the
paper's model writes reflection tokens (``self_rag``). Steps and weights are the paper's.

Differences, and why:

- Verdicts are words, not probabilities, so there is no threshold. One that cannot be read counts 0, or as a
  wish to look something up.
- A segment is one sentence: only the trained model marks where its segments end.
- The best sentence is kept, without a beam, which would multiply the calls; one without a passage is not
  judged.
- A stated answer ends the loop; one that was not stated is asked for in the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge

from corag.baselines.self_rag.method import (
    SUPPORT,
    UTILITY,
    Critique,
    CritiqueConfig,
    JudgedSegment,
    from_each,
    segment_score,
)
from corag.baselines.shared import PROMPTS, answer_of_chain, chain_text, cued_text
from corag.core.errors import BudgetExhaustedError
from corag.core.language.sentences import sentence_end
from corag.core.language.text import stated_answer
from corag.core.method import Method
from corag.core.options.names import NameOrPath
from corag.core.prompting.prompt import Prompt, Segment
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import Template, load_prompt
from corag.core.protocols import Ability
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Question

Aspect = Literal["retrieve", "relevance", "support", "utility"]
"""What a verdict is about, in the place of a group of reflection tokens."""


@dataclass(frozen=True)
class SelfRAGPromptedConfig(CritiqueConfig, section="self_rag_prompted"):
    """Options of prompted Self-RAG, beside those that the method with reflection tokens has too."""

    max_segments: Annotated[int, Ge(1)] = 6
    """most sentences of the answer."""

    max_segment_tokens: Annotated[int, Ge(1)] = 100
    """most tokens generated for one."""

    force_answer: bool = True
    """ask for the answer if no sentence states one. A spent budget is always answered so."""

    max_answer_tokens: Annotated[int, Ge(1)] = 64
    """most tokens of a forced answer."""

    prompt: NameOrPath = "self_rag_segment"
    """of a sentence: a shipped name, a file, or a text with {passages}, {query} and {written}."""

    def template(self, name: Aspect | Literal["segment"]) -> Template:
        """Load the prompt of a sentence or of a verdict."""
        shipped_name = f"self_rag_{name}"
        return load_prompt(self.prompt if name == "segment" else shipped_name, shipped_name, PROMPTS)

    def needs(self) -> Mapping[Ability, str]:
        """A sentence counts by its probability, too."""
        return {Ability.LOGPROBS: ""}

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that these options use."""
        judgements = map(self.template, _WORDS)
        return (self.template("segment"), *judgements)


@dataclass(frozen=True, slots=True)
class SelfRAGPromptedAnswer(Answer):
    """Prompted Self-RAG's result.

    ``steps``: its sentences, which are ``segments``. ``stopped``: "answer" (the newest sentence states one),
    "end" (of the model's turn), "max_segments", "empty_generation" or "budget". ``searched``: sentences that
    passages were searched for. ``compared``: sentences that were written. ``malformed``: verdicts that could
    not be read.
    """

    searched: int = 0
    compared: int = 0
    malformed: int = 0
    segments: tuple[JudgedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class Continuation:
    """A sentence to go on with, and its passage; ``is_last``: the model wrote nothing after it."""

    segment: JudgedSegment
    source: Hit | None
    is_last: bool
    malformed: int


async def self_rag_prompted(
    question: Question, tools: Tools, config: SelfRAGPromptedConfig
) -> SelfRAGPromptedAnswer:
    """Answer one question with Self-RAG's steps (paper, Algorithm 1), each decision asked for."""
    segments: list[JudgedSegment] = []
    passage_ids: dict[str, None] = {}
    stop_reason = ""
    searches = comparisons = malformed_replies = 0
    source: Hit | None = None  # what the newest sentence was written from; before the first, the best passage

    def final(segments_kept: Sequence[JudgedSegment]) -> Prompt:
        return segment_prompt(question.text, source, cued_text(segments_kept), config)

    try:
        while not stop_reason:
            path = f"segment {len(segments) + 1}"
            before = chain_text(segments)
            # The forced answer reads one sentence more than now.
            with tools.reserve(final(segments), config.max_segment_tokens + config.max_answer_tokens):
                # Retrieve: asked first.
                values = {"query": question.text, "written": before}
                chance = await verdict("retrieve", values, tools, config, path=path)
                malformed_replies += chance is None
                # Passages for the question and the newest sentence.
                hits: tuple[Hit, ...] = ()
                if chance != 0:  # an unreadable verdict too: a search more costs less than a fact less
                    newest = segments[-1].text.strip() if segments else ""
                    hits = await tools.search(f"{question.text} {newest}".strip(), k=config.k, path=path)
                    passage_ids |= dict.fromkeys(hit.passage.id for hit in hits)
                    searches += 1
                    if not segments:
                        source = next(iter(hits), None)
                # Generate and Critique: from each passage a sentence, and its judgement.
                go_on = partial(write, before=before, config=config)
                most = partial(cost_bound, before=before, config=config)
                continuations = await from_each(hits or (None,), go_on, most, tools, path)
            comparisons += len(continuations)
            malformed_replies += sum(one.malformed for one in continuations)
            # Rank: the best is kept.
            best = max(continuations, key=lambda one: (bool(one.segment.text), one.segment.score))
            if not best.segment.text:
                stop_reason = "empty_generation"
                break
            segments.append(best.segment)
            source = best.source
            stop_reason = exit_reason(best, len(segments), config)
    except BudgetExhaustedError:
        stop_reason = "budget"
    answer = await answer_of_chain(
        final, segments, stop_reason, tools, config.force_answer, config.max_answer_tokens
    )
    counts = (searches, comparisons, malformed_replies)
    return SelfRAGPromptedAnswer(
        answer, tuple(passage_ids), len(segments), stop_reason, *counts, tuple(segments)
    )


def exit_reason(newest: Continuation, count: int, config: SelfRAGPromptedConfig) -> str:
    """Return why the loop ends after the newest of ``count`` sentences, "" if it goes on."""
    if stated_answer(newest.segment.text.strip()) is not None:
        return "answer"
    if newest.is_last:
        return "end"
    return "max_segments" if count >= config.max_segments else ""


# Sentences: each is written from a passage, if there is one, and judged


async def write(
    hit: Hit | None, tools: Tools, path: str, *, before: str, config: SelfRAGPromptedConfig
) -> Continuation:
    """Write the next sentence and, if it comes from a passage, judge it."""
    reply = await tools.generate(
        segment_prompt(tools.question.text, hit, before, config),
        role="segment",
        max_tokens=config.max_segment_tokens,
        logprobs=True,
        path=path,
    )
    completion = reply.completions[0]
    end = sentence_end(completion.text)
    text = completion.text[:end]
    critique, malformed_replies = Critique(), 0
    if hit is not None and text:
        with suppress(BudgetExhaustedError):  # what can no longer be judged is kept all the same
            critique, malformed_replies = await criticise(hit, before, text, tools, config, path=path)
    score = segment_score(critique, completion.tokens(end))
    is_last = completion.finish_reason == "stop" and not completion.text[end:].strip()
    segment = JudgedSegment(text, hit.passage.id if hit else "", critique, score)
    return Continuation(segment, hit, is_last, malformed_replies)


def cost_bound(hit: Hit | None, tools: Tools, *, before: str, config: SelfRAGPromptedConfig) -> int:
    """Return what a sentence and its critique may cost at most."""
    query, limit = tools.question.text, config.max_segment_tokens
    writing = tools.cost(segment_prompt(query, hit, before, config), limit)
    if hit is None:
        return writing
    inquiries = critique_inquiries(hit, before, "", query, config)
    prompts = (config.template(name).render(values) for name, values in inquiries)
    return writing + sum(tools.cost(prompt, limit + VERDICT_TOKENS) for prompt in prompts)


def segment_prompt(query: str, hit: Hit | None, before: str, config: SelfRAGPromptedConfig) -> Prompt:
    """Write the answer so far with a passage, to be continued."""
    template = config.template("segment")
    passages = render_source(hit, template, config)
    return template.render({"query": query, "written": before, "passages": passages})


def render_source(hit: Hit | None, template: Template, config: SelfRAGPromptedConfig) -> list[Segment]:
    """Write the passage, or that there is none."""
    return render_passages([hit.passage] if hit else [], template, config.max_shown_words, goes_first="last")


# Verdicts: short replies, read as the values that the paper gives to the reflection tokens in their place

Inquiry: TypeAlias = tuple[Aspect, Mapping[str, str | Sequence[Segment]]]
"""A verdict to ask for, and the values of its prompt's fields."""

VERDICT_TOKENS = 8  # ours: a word, and the quotation marks or bold type around it
_YES_NO = {"yes": 1.0, "no": 0.0}
_WORDS: dict[Aspect, Mapping[str, float]] = {
    "retrieve": _YES_NO,
    "relevance": _YES_NO,
    "support": {"fully": SUPPORT[0], "partially": SUPPORT[1], "no": SUPPORT[2], "not": SUPPORT[2]},
    "utility": dict(zip("12345", UTILITY, strict=True)),
}


async def criticise(
    hit: Hit, before: str, sentence: str, tools: Tools, config: SelfRAGPromptedConfig, *, path: str
) -> tuple[Critique, int]:
    """Judge a sentence that was written from a passage (ISREL, ISSUP, ISUSE).

    Return the critique, and how many verdicts could not be read. ``before``: the answer before the sentence.
    """
    values = {
        name: await verdict(name, fields, tools, config, path=path)
        for name, fields in critique_inquiries(hit, before, sentence, tools.question.text, config)
    }
    critique = Critique(*(values.get(name) or 0.0 for name in ("relevance", "support", "utility")))
    return critique, list(values.values()).count(None)


def critique_inquiries(
    hit: Hit, before: str, sentence: str, query: str, config: SelfRAGPromptedConfig
) -> list[Inquiry]:
    """List what is asked about a sentence that was written from a passage."""
    relevance_source = render_source(hit, config.template("relevance"), config)
    support_source = render_source(hit, config.template("support"), config)
    return [
        ("relevance", {"query": query, "passages": relevance_source, "written": before}),
        ("support", {"passages": support_source, "sentence": sentence.strip()}),
        ("utility", {"query": query, "written": (before + sentence).strip()}),
    ]


async def verdict(
    name: Aspect,
    values: Mapping[str, str | Sequence[Segment]],
    tools: Tools,
    config: SelfRAGPromptedConfig,
    *,
    path: str,
) -> float | None:
    """Ask for a verdict and return its value, None if the reply is none."""
    prompt = config.template(name).render(values)
    reply = await tools.generate(prompt, role=name, max_tokens=VERDICT_TOKENS, path=path)
    return read_verdict(name, reply.text)


def read_verdict(name: Aspect, reply: str) -> float | None:
    """Return what the first word of a reply that can be a verdict is worth, None if there is none.

    >>> read_verdict("support", "Not fully."), read_verdict("utility", "4/5"), read_verdict("retrieve", "Hm.")
    (0.0, 0.5, None)
    """
    words = _WORDS[name]
    match = re.search(rf"\b({'|'.join(words)})\b", reply.lower())
    return None if match is None else words[match.group()]


METHOD = Method(
    self_rag_prompted,
    SelfRAGPromptedConfig,
    "Self-RAG's decisions asked of any instruction model in prompts (after Asai et al. 2024)",
    published="2023-10",
)
