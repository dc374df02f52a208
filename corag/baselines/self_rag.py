"""Self-RAG with a model that writes reflection tokens (Asai et al., ICLR 2024, arXiv 2310.11511).

The model says by a token whether it wants passages, goes on once from each of them, and judges each
continuation. What it thinks, as probabilities of reflection tokens, decides which hypotheses (answers so far)
are kept. Presets: "short_form" and "long_form", as in the released scripts.

It needs a model trained for it, such as selfrag/selfrag_llama2_7b with ``--model.chat no``.

Differences, and why:

- Probabilities are compared, as in the paper; the released code divides log-probabilities, which makes it
  retrieve for nearly every question.
- A hypothesis is worth its segments' mean, so that those of different lengths compare; in the code it is
  their product, in the long form without utility.
- Finished hypotheses stay in the beam, and none sees its sibling's text.
- The answer loses its reflection tokens; the code leaves some in the best open answer.

The paper counts an answer as right if it holds the gold one, so exact match is lower here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from corag.baselines.shared import PROMPTS
from corag.core.errors import BudgetExhaustedError, ConfigError
from corag.core.method import Method, MethodConfig
from corag.core.options.names import NameOrPath
from corag.core.prompting.prompt import Prompt, Segment
from corag.core.prompting.render import clip_words
from corag.core.prompting.template import Template, load_prompt
from corag.core.protocols import Ability
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Passage, Question

# Judged segments, and how judgements are weighed

# Asai et al., ICLR 2024, section 3.3, and the released code.
SUPPORT = (1.0, 0.5, 0.0)
"""What fully, partially and not supported are worth (ISSUP)."""
UTILITY = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""What a usefulness of 1 to 5 is worth (ISUSE)."""
WEIGHTS = (1.0, 1.0, 0.5)  # released code: its functions and README; its command line says 1.0 for the last
"""Of ISREL, ISSUP and ISUSE."""


@dataclass(frozen=True, slots=True)
class Critique:
    """What the model makes of a segment and its passage; what was not judged is 0.

    ``relevance`` of the passage (ISREL), ``support`` of what was written by it (ISSUP), each from 0 to 1;
    ``utility`` of that (ISUSE), from -1 to 1.
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


def segment_score(critique: Critique, tokens: Sequence[tuple[str, float]]) -> float:
    """Weigh a segment (equations 3 and 4). ``tokens``: its tokens with their natural log-probabilities."""
    values = (critique.relevance, critique.support, critique.utility)
    critique_score = sum(weight * value for weight, value in zip(WEIGHTS, values, strict=True))
    if not tokens:
        return critique_score
    # The mean per token, so that a long segment is not worth less for its length.
    return critique_score + math.exp(sum(logprob for _, logprob in tokens) / len(tokens))


# Reflection tokens, as the authors' checkpoints spell them.
RETRIEVE_TOKENS = ("[Retrieval]", "[No Retrieval]", "[Continue to Use Evidence]")
RELEVANCE_TOKENS = ("[Relevant]", "[Irrelevant]")
SUPPORT_TOKENS = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
UTILITY_TOKENS = tuple(f"[Utility:{degree}]" for degree in range(1, 6))
PASSAGE_TOKENS = ("<paragraph>", "</paragraph>")
REFLECTION_TOKENS = (
    *RETRIEVE_TOKENS, *RELEVANCE_TOKENS, *SUPPORT_TOKENS, *UTILITY_TOKENS, *PASSAGE_TOKENS
)  # fmt: skip


@dataclass(frozen=True)
class SelfRAGConfig(MethodConfig, section="self_rag"):
    """Options of Self-RAG with reflection tokens."""

    preset: Literal["short_form", "long_form"] = "short_form"
    """"short_form" (one segment, ten passages, as for PopQA) or "long_form" (segment-level beam search, as
    for ASQA)."""

    k: Annotated[int, Ge(1)] = 10
    """passages of each search; the model goes on once from each of them (also ``top_k``)."""

    retrieval: Literal["adaptive", "always", "never"] = "adaptive"
    """"adaptive" searches where the model wants it by ``threshold``; "always" and "never" do not ask it."""

    threshold: Annotated[float, Ge(0), Le(1)] = 0.2
    """search when P(retrieve) / (P(retrieve) + P(do not)) is above this."""

    search_with: Literal["question", "segment"] = "question"
    """the "question" alone (released code), or the question and the newest "segment" (Algorithm 1)."""

    max_segments: Annotated[int, Ge(1)] = 1
    """most segments (the paper's T); 1 is the short form."""

    beam: Annotated[int, Ge(1)] = 2
    """hypotheses (answers so far) kept after each segment."""

    max_segment_tokens: Annotated[int, Ge(1)] = 100
    """most tokens of a segment."""

    max_shown_words: Annotated[int, Ge(1)] = 350
    """passages are cut to so many words in prompts."""

    prompt: NameOrPath = "self_rag"
    """a shipped name, a file, or a text with {query} and, at its end, {response}."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_paragraph_words": "max_shown_words"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "short_form": {},
        "long_form": {"k": 5, "max_segments": 6, "max_segment_tokens": 300},
    }

    def prompt_at(self, query: str, response: str) -> Prompt:
        """Return the prompt that is to be continued after ``response``."""
        # In a reply the reflection tokens are tokens, as the model wrote them, and no others.
        tokens = re.finditer("|".join(map(re.escape, REFLECTION_TOKENS)), response)
        segment = Segment(response, wording=tuple(token.span() for token in tokens))
        return self.templates()[0].render({"query": query, "response": [segment]})

    def needs(self) -> Mapping[Ability, str]:
        """It reads reflection tokens, and scores those that were not written."""
        return {Ability.LOGPROBS: "", Ability.SPECIAL_TOKENS: "", Ability.SCORES: ""}

    def templates(self) -> tuple[Template, ...]:
        """The prompt."""
        return (load_prompt(self.prompt, "self_rag", PROMPTS),)

    def source_text(self, passage: Passage | None) -> str:
        """Return what a segment stands behind: a passage, or the word that there is none."""
        if passage is None:
            return RETRIEVE_TOKENS[1]
        before, after = PASSAGE_TOKENS
        text = f"{passage.title}\n{clip_words(passage.text.strip(), self.max_shown_words)}"
        for name in REFLECTION_TOKENS:  # a passage that spells one has not been judged by it
            text = text.replace(name, f"{name[0]} {name[1:]}")
        return f"{RETRIEVE_TOKENS[0]}{before}{text}{after}"

    def without_reflection_tokens(self, text: str) -> str:
        """Return a text without reflection tokens."""
        for name in REFLECTION_TOKENS:
            text = text.replace(name, " ")
        return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """An answer so far.

    ``stopped``: "" if it goes on, from passages, else "end", "max_segments" or "budget".
    """

    segments: tuple[JudgedSegment, ...] = ()
    stopped: str = ""

    @property
    def text(self) -> str:
        """Its segments with their reflection tokens, without passages: what the next prompt shows of them."""
        return "".join(segment.text for segment in self.segments)

    @property
    def score(self) -> float:
        """The mean of its segments' scores; 0 if there are none."""
        return sum(segment.score for segment in self.segments) / max(1, len(self.segments))


@dataclass(frozen=True, slots=True)
class SelfRAGAnswer(Answer):
    """Self-RAG's result.

    ``steps``: segments of the chosen hypothesis, which are ``segments``. ``stopped``: "end" (nothing more was
    written), "max_segments" or "budget". ``retrieved``: whether the question was found to want passages.
    ``compared``: continuations that were judged.
    """

    retrieved: bool = False
    compared: int = 0
    segments: tuple[JudgedSegment, ...] = ()


async def self_rag(question: Question, tools: Tools, config: SelfRAGConfig) -> SelfRAGAnswer:
    """Answer one question with Self-RAG (paper, Algorithm 1 and section 3.3)."""
    beam = [Hypothesis()]
    hits_by_query: dict[str, tuple[Hit, ...]] = {}
    wants_retrieval, comparisons, cut_short = False, 0, ""
    try:
        # Retrieve: predicted first. Later segments begin where the model wanted passages.
        wants_retrieval = await wants_passages("", tools, config, path="question")
        while going := [each for each in beam if not each.stopped]:
            number = len(going[0].segments) + 1
            # Passages for each hypothesis; one without any goes on by itself.
            openings: list[tuple[Hypothesis, Hit | None]] = []
            for hypothesis in going:
                searches = wants_retrieval or hypothesis.segments
                hits = await passages_for(hypothesis, hits_by_query, tools, config) if searches else ()
                openings += [(hypothesis, hit) for hit in hits or (None,)]
            # Generate and Critique: from each opening a continuation, and its judgement.
            continuations = await from_each(openings, tools, config, f"segment {number}")
            comparisons += len(continuations)
            # Rank: the best are kept.
            pool = [each for each in beam if each.stopped] + continuations
            beam = sorted(pool, key=lambda each: rank_key(each, config), reverse=True)[: config.beam]
    except BudgetExhaustedError:
        cut_short = "budget"
    best = beam[0]
    ids = dict.fromkeys(hit.passage.id for hits in hits_by_query.values() for hit in hits)
    stop_reason = cut_short or best.stopped
    text = config.without_reflection_tokens(best.text)
    return SelfRAGAnswer(
        text, tuple(ids), len(best.segments), stop_reason, wants_retrieval, comparisons, best.segments
    )


async def passages_for(
    hypothesis: Hypothesis, hits_by_query: dict[str, tuple[Hit, ...]], tools: Tools, config: SelfRAGConfig
) -> tuple[Hit, ...]:
    """Search for a hypothesis, unless the same query has been searched for."""
    with_segment = hypothesis.segments and config.search_with == "segment"
    newest = config.without_reflection_tokens(hypothesis.segments[-1].text) if with_segment else ""
    query = f"{tools.question.text} {newest}".strip()
    if query not in hits_by_query:
        hits_by_query[query] = await tools.search(
            query, k=config.k, path=f"segment {len(hypothesis.segments) + 1}"
        )
    return hits_by_query[query]


async def from_each(
    openings: Sequence[tuple[Hypothesis, Hit | None]], tools: Tools, config: SelfRAGConfig, path: str
) -> list[Hypothesis]:
    """Go on from all openings at the same time, or from as many as the budget allows, then from others.

    At least one gets what is left, for an answer cut short is better than none. What cannot be paid for is
    left out.

    Args:
        openings: what to go on from, best first.
        tools: the question's.
        config: the method's options.
        path: of all of them in the method.

    Raises:
        BudgetExhaustedError: not one could be paid for.
    """
    return await tools.fan_out_certain(
        list(enumerate(openings, 1)),
        lambda entry, branch: extend(entry[1], branch, f"{path}/candidate {entry[0]}", config=config),
        lambda entry: cost_bound(entry[1], tools, config=config),
        at_least_one=True,
    )


async def extend(
    opening: tuple[Hypothesis, Hit | None], tools: Tools, path: str, *, config: SelfRAGConfig
) -> Hypothesis:
    """Return a hypothesis with one more segment, written from a passage and judged."""
    hypothesis, hit = opening
    before = hypothesis.text + config.source_text(hit.passage if hit else None)
    last = len(hypothesis.segments) + 1 >= config.max_segments
    reply = await tools.generate(
        config.prompt_at(tools.question.text, before),
        role="segment",
        max_tokens=config.max_segment_tokens,
        stop=PASSAGE_TOKENS[:1],  # passages are ours to give
        logprobs=True,
        special_tokens=True,  # else the engine would leave out the reflection tokens
        path=path,
    )
    completion = reply.completions[0]
    # What holds if the budget ends before it is known whether the model wants more passages.
    end, stop_reason, critique = len(completion.text), "budget", Critique()
    with suppress(BudgetExhaustedError):  # what can no longer be judged is kept all the same
        end, goes_on = await segment_end(before, completion.text, tools, config, last=last, path=path)
        stop_reason = "end" if not goes_on else "max_segments" if last else ""
        critique = await criticise(
            before, completion.text[:end], tools, config, with_passage=hit is not None, path=path
        )
    score = segment_score(critique, completion.tokens(end))
    segment = JudgedSegment(completion.text[:end], hit.passage.id if hit else "", critique, score)
    return Hypothesis((*hypothesis.segments, segment), stop_reason)


def rank_key(hypothesis: Hypothesis, config: SelfRAGConfig) -> tuple[bool, float]:
    """Order hypotheses: one that says nothing comes after all others, a score that is no number last."""
    score = -math.inf if math.isnan(hypothesis.score) else hypothesis.score
    return bool(config.without_reflection_tokens(hypothesis.text)), score


# Reflection tokens: what the model thinks, as probabilities of one token against the others of its group

_NAME_TOKENS = 8  # a reflection token scored costs less than that, however the model spells it


async def reflection_probabilities(
    before: str, names: Sequence[str], tools: Tools, config: SelfRAGConfig, *, role: str, path: str
) -> list[float]:
    """Return the probabilities of some reflection tokens after ``before``, which sum to 1.

    Each is forced and scored by itself: no engine returns the whole vocabulary's probabilities.

    Raises:
        ConfigError: the model does not have these tokens.
    """
    prompt = config.prompt_at(tools.question.text, before)
    logprobs: list[float] = []
    for name in names:
        score = await tools.score(prompt, name, role=role, path=path)
        if not logprobs and len(score.token_ids) != 1:
            raise ConfigError(
                f"the model has no reflection token '{name}': it reads it as {len(score.token_ids)} tokens. "
                "Name a model that was trained for Self-RAG, such as model.name=selfrag/selfrag_llama2_7b."
            )
        logprobs.append(score.sum)
    # Less the largest, so that not all of them become 0.
    weights = [math.exp(logprob - max(logprobs)) for logprob in logprobs]
    return [weight / sum(weights) for weight in weights]


async def wants_passages(before: str, tools: Tools, config: SelfRAGConfig, *, path: str) -> bool:
    """Whether the model wants passages after ``before`` (section 3.3, adaptive retrieval)."""
    if config.retrieval != "adaptive":
        return config.retrieval == "always"
    # Against "[No Retrieval]" alone (released code), though the model has a third word for the same passages.
    yes, _ = await reflection_probabilities(
        before, RETRIEVE_TOKENS[:2], tools, config, role="retrieve", path=path
    )
    return yes > config.threshold


async def segment_end(
    before: str, text: str, tools: Tools, config: SelfRAGConfig, *, last: bool, path: str
) -> tuple[int, bool]:
    """Return how many characters of a text are its segment, and whether passages are wanted after it.

    A segment ends at a [Retrieval], or at a [No Retrieval] that the threshold overrules; the ``last`` one is
    not asked about the latter.
    """
    if config.retrieval == "never":
        return len(text), False
    yes, no, _ = RETRIEVE_TOKENS
    for match in re.finditer(f"{re.escape(yes)}|{re.escape(no)}", text):
        said_yes = match.group() == yes
        if said_yes or (
            not last and await wants_passages(before + text[: match.start()], tools, config, path=path)
        ):
            return match.start(), True
    return len(text), False


async def criticise(
    before: str, text: str, tools: Tools, config: SelfRAGConfig, *, with_passage: bool, path: str
) -> Critique:
    """Judge a segment: ISREL where it begins, ISSUP and ISUSE where the model wrote such a token, else 0."""

    async def mean_value(names: Sequence[str], values: Sequence[float], at: int) -> float:
        chances = await reflection_probabilities(
            before + text[:at], names, tools, config, role="critique", path=path
        )
        return sum(chance * value for chance, value in zip(chances, values, strict=True))

    relevance = support = utility = 0.0
    if with_passage:
        relevance = await mean_value(RELEVANCE_TOKENS, (1.0, 0.0), 0)
    if with_passage and (at := find_first(SUPPORT_TOKENS, text)) is not None:
        support = await mean_value(SUPPORT_TOKENS, SUPPORT, at)
    if (at := find_first(UTILITY_TOKENS, text)) is not None:
        utility = await mean_value(UTILITY_TOKENS, UTILITY, at)
    return Critique(relevance, support, utility)


def find_first(names: Sequence[str], text: str) -> int | None:
    """Return where the first of these names stands in a text, None if there is none."""
    return min((at for name in names if (at := text.find(name)) >= 0), default=None)


def cost_bound(opening: tuple[Hypothesis, Hit | None], tools: Tools, *, config: SelfRAGConfig) -> int:
    """Return what a segment and its critique may cost, if it holds one [No Retrieval] at most."""
    hypothesis, hit = opening
    before = hypothesis.text + config.source_text(hit.passage if hit else None)
    prompt = config.prompt_at(tools.question.text, before)
    last = len(hypothesis.segments) + 1 >= config.max_segments
    calls = 2 if config.retrieval == "adaptive" and not last else 0
    calls += len(RELEVANCE_TOKENS) + len(SUPPORT_TOKENS) if hit else 0
    calls += len(UTILITY_TOKENS)
    judging = calls * tools.cost(prompt, config.max_segment_tokens + _NAME_TOKENS)
    return tools.cost(prompt, config.max_segment_tokens) + judging


METHOD = Method(
    self_rag,
    SelfRAGConfig,
    "a model with reflection tokens decides, judges and searches (Self-RAG: Asai et al. 2024)",
    published="2023-10",
)
