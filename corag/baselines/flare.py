"""FLARE direct: forward-looking active retrieval (Jiang et al., EMNLP 2023, arXiv 2305.06983).

Draft the next sentence. If one of its tokens is improbable, make a query of the draft, search, and write the
sentence again from what was found; so on to the end. Preset "paper" is the released configuration for
2WikiMultihopQA: 8 demonstrations, 2 passages, theta 0.8, beta 0.4.

Differences, and why:

- The demonstrations' passages are those of your file, not searched for: every question would pay for the
  same.
- Sentences are split by rules, not by NLTK, and end at line breaks too, which chat models write.
- An accepted draft is kept; the released code generates it again with the same prompt, for the same text.
- A draft whose query is blank or finds nothing, or that would be written again as nothing, is kept.
- A stated answer ends the loop. If none was stated it is asked for; preset "paper" asks only when the budget
  is spent.

The thresholds were tuned for text-davinci-003, and models tuned to follow instructions are surer of
themselves. Look at ``searched`` in the trace (the paper is best when it is true of 40 to 80% of the
sentences) and tune ``theta`` for your model.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Le

from corag.baselines.shared import PROMPTS, answer_from_newest, check_few_shot
from corag.core.errors import BudgetExhaustedError
from corag.core.fusion import interleave
from corag.core.language.sentences import sentence_end
from corag.core.language.text import extract_answer, stated_answer
from corag.core.method import Method
from corag.core.options.names import NameOrPath
from corag.core.prompting.demonstrations import DemonstrationConfig
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.render import load_layout, render_demonstrations, render_passages
from corag.core.prompting.template import Template, load_template
from corag.core.protocols import Ability
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Question

SHORTEST_SENTENCE = 5  # released code: what is shorter, in characters, is one sentence with what follows
ANSWER_CUE = "So the answer is:"  # IRCoT's words, which its pattern reads; a chain is made to go on with them
SPAN_GAP = 5  # released code: unsure tokens this near to each other, in tokens, belong to one span

Token: TypeAlias = tuple[str, float]
"""A token's text and its natural log-probability."""


@dataclass(frozen=True)
class FLAREConfig(DemonstrationConfig, section="flare"):
    """Options of FLARE direct, and of demonstrations.

    Defaults are those of the released configuration for 2WikiMultihopQA.
    """

    preset: Literal["paper", "zero_shot"] = "zero_shot"
    """"paper" (few-shot: give ``demonstrations``, the first eight are used) or "zero_shot" (chat models)."""

    theta: Annotated[float, Ge(0), Le(1)] = 0.8
    """confidence threshold: a draft with a token of this probability or less triggers a search; 0 never
    searches, 1 always. StrategyQA: 0.4."""

    beta: Annotated[float, Ge(0), Le(1)] = 0.4
    """tokens of this probability or less are masked in the query, or asked for; 0 searches with the whole
    draft."""

    query: Literal["masked", "questions"] = "masked"
    """"masked" removes these tokens (implicit query); "questions" lets the model ask for each span of them
    (explicit)."""

    draft_with: Literal["passages", "nothing"] = "passages"
    """drafts are conditioned on the newest "passages" (released code), or on "nothing" except the first one
    (the paper's text)."""

    k: Annotated[int, Ge(1)] = 2
    """passages per search, which replace earlier ones (also ``top_k``)."""

    look_ahead_tokens: Annotated[int, Ge(1)] = 64
    """token limit of a draft, and of a sentence."""

    max_tokens: Annotated[int, Ge(1)] = 256
    """token limit of the whole answer."""

    max_sentences: Annotated[int, Ge(1)] = 15  # ours: an end for models whose sentences are a few words long
    """maximum number of sentences."""

    force_answer: bool = True
    """request an answer if no sentence states one (released code: no). With an exhausted budget this is
    always done."""

    max_answer_tokens: Annotated[int, Ge(1)] = 64
    """token limit of a forced answer."""

    max_question_tokens: Annotated[int, Ge(1)] = 64
    """token limit of an explicit query."""

    prompt: NameOrPath = "auto"
    """"auto" (``layout`` with demonstrations, else ``flare``), a shipped name, a file, or a text with
    {query}, {paragraphs} and {cot_history}."""

    demonstration_count: Annotated[int, Ge(0)] = 8
    max_shown_words: Annotated[int, Ge(1)] = 350
    """passages are truncated to this many words in prompts."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_paragraph_words": "max_shown_words"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"force_answer": False},
        "zero_shot": {},
    }

    def __post_init__(self) -> None:
        check_few_shot(self.SECTION, self.preset, self.demonstrations, self.prompt)

    def template(self) -> Template:
        """Load the prompt that asks for the next sentence."""
        auto = "layout" if self.demonstrations else "flare"
        source = auto if self.prompt == "auto" else self.prompt
        return load_layout(
            source, PROMPTS, needs=("query", "paragraphs", "cot_history", *self.few_shot_fields())
        )

    def needs(self) -> Mapping[Ability, str]:
        """The probabilities of what it drafts say where it is unsure."""
        return {Ability.LOGPROBS: ""}

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that these options use."""
        questions = [load_template("flare_question", PROMPTS)] if self.query == "questions" else []
        return (self.template(), *questions)


@dataclass(frozen=True, slots=True)
class DraftRecord:
    """What was drafted for a sentence of the answer.

    ``searched``: it was given up for a sentence that read fresh passages.
    """

    text: str
    confidence: float
    queries: tuple[str, ...]
    searched: bool


@dataclass(frozen=True, slots=True)
class FLAREAnswer(Answer):
    """FLARE's result.

    ``steps``: sentences of the answer, which are ``sentences``, one draft each; blank ones are left out.

    ``stopped``: "answer" (the newest sentence states one), "end" (of the model's turn), "max_sentences",
    "max_tokens", "empty_generation" or "budget". After all but "answer", it was asked for, with the preset
    "paper" after "budget" only.
    """

    sentences: tuple[str, ...] = ()
    drafts: tuple[DraftRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """A generated sentence with the white space before it; ``is_last``: the model wrote nothing after it."""

    text: str
    tokens: tuple[Token, ...]
    is_last: bool

    @property
    def confidence(self) -> float:
        """The lowest probability of its tokens; 1 if there are none."""
        return math.exp(min((logprob for _, logprob in self.tokens), default=0.0))


async def flare(question: Question, tools: Tools, config: FLAREConfig) -> FLAREAnswer:
    """Answer one question with FLARE direct (paper, section 3.2)."""
    sentences: list[Sentence] = []
    drafts: list[DraftRecord] = []
    passage_ids: dict[str, None] = {}
    stop_reason = ""
    # 1. The question's passages set the generation going (section 3: the initial query is the input).
    hits = await look_up([question.text], passage_ids, tools, config, path="question")

    def final(written_sentences: Sequence[Sentence]) -> Prompt:
        return answer_prompt(question, hits, cued_text(written_sentences), config)

    try:
        while not stop_reason:
            path = f"sentence {len(sentences) + 1}"
            # The forced answer reads one sentence more than now.
            with tools.reserve(final(sentences), config.look_ahead_tokens + config.max_answer_tokens):
                # 2. Look ahead (section 3.2.1): the next sentence, for the time being.
                context = hits if config.draft_with == "passages" or not sentences else []
                sentence = draft = await next_sentence(
                    "draft", question, context, sentences, tools, config, path=path
                )
                queries: list[str] = []
                if draft.tokens and draft.confidence <= config.theta:
                    # 3. Unsure: search for what it says, or for what it does not know (3.2.2),
                    #    and write it again. The new passages replace those before.
                    queries = await form_queries(draft, sentences, tools, config, path=path)
                    if fresh := await look_up(queries, passage_ids, tools, config, path=path):
                        hits = fresh
                        again = await next_sentence(
                            "sentence", question, hits, sentences, tools, config, path=path
                        )
                        sentence = again if again.text.strip() else draft
            if not sentence.text.strip():  # the same prompt would give the same nothing again
                stop_reason = "empty_generation"
                break
            searched = sentence is not draft
            drafts.append(DraftRecord(draft.text, draft.confidence, tuple(queries), searched))
            sentences.append(sentence)
            stop_reason = exit_reason(sentences, config)
    except BudgetExhaustedError:
        stop_reason = "budget"
    answer = await answer_of_chain(
        final, sentences, stop_reason, tools, config.force_answer, config.max_answer_tokens
    )
    texts = tuple(sentence.text for sentence in sentences)
    return FLAREAnswer(answer, tuple(passage_ids), len(sentences), stop_reason, texts, tuple(drafts))


def exit_reason(sentences: Sequence[Sentence], config: FLAREConfig) -> str:
    """Return why the loop ends after the newest sentence, "" if it goes on."""
    newest = sentences[-1]
    if stated_answer(newest.text.strip()) is not None:
        return "answer"
    if newest.is_last:
        return "end"
    if len(sentences) >= config.max_sentences:
        return "max_sentences"
    return "max_tokens" if token_count(sentences) >= config.max_tokens else ""


async def look_up(
    queries: Sequence[str], passage_ids: dict[str, None], tools: Tools, config: FLAREConfig, *, path: str
) -> list[Hit]:
    """Search with each query that is not blank, note what came in ``passage_ids``, merge it into k hits."""
    rankings = [await tools.search(query, k=config.k, path=path) for query in queries if query]
    passage_ids |= dict.fromkeys(hit.passage.id for ranking in rankings for hit in ranking)
    return interleave(rankings)[: config.k]


# Sentences (section 3.2.1)


async def next_sentence(
    role: str,
    question: Question,
    hits: Sequence[Hit],
    sentences: Sequence[Sentence],
    tools: Tools,
    config: FLAREConfig,
    *,
    path: str,
) -> Sentence:
    """Generate on from the sentences so far, and keep the first sentence with its tokens."""
    prompt = answer_prompt(question, hits, chain_text(sentences), config)
    rest = config.max_tokens - token_count(sentences)
    stop = ("\n\n",) if prompt.plain else ()  # released code: a blank line begins another demonstration
    reply = await tools.generate(
        prompt,
        role=role,
        max_tokens=min(config.look_ahead_tokens, rest),
        stop=stop,
        logprobs=True,
        path=path,
    )
    completion = reply.completions[0]
    end = sentence_end(completion.text, SHORTEST_SENTENCE)
    is_last = completion.finish_reason == "stop" and not completion.text[end:].strip()
    return Sentence(completion.text[:end], tuple(completion.tokens(end)), is_last)


def answer_prompt(question: Question, hits: Sequence[Hit], so_far: str, config: FLAREConfig) -> Prompt:
    """Write the answer so far, to be continued; a prompt that is too long loses the worst passages first."""
    template, passages = config.template(), (hit.passage for hit in hits)
    return template.render(
        {
            "query": question.text,
            "paragraphs": render_passages(passages, template, config.max_shown_words, goes_first="last"),
            "cot_history": so_far,
            "demonstrations": render_demonstrations(config.examples(), template),
        }
    )


def token_count(sentences: Sequence[Sentence]) -> int:
    """Return how many tokens the answer so far has."""
    return sum(len(sentence.tokens) for sentence in sentences)


# The answer in the end


async def answer_of_chain(
    prompt: Callable[[Sequence[Sentence]], Prompt],
    chain: Sequence[Sentence],
    stop_reason: str,
    tools: Tools,
    force: bool,
    max_tokens: int,
) -> str:
    """Return what a chain of thought states as its answer, else what it states when made to go on with one.

    ``force``: whether it is made to; under a spent budget it always is. Then demonstrations and passages of
    the ``prompt`` go before sentences of the chain do. If nothing comes of it, or it is not asked for, what
    was written is the answer.
    """
    answer = extract_answer(chain_text(chain))
    if stop_reason == "answer" or not (force or stop_reason == "budget"):
        return answer
    forced_text = await answer_from_newest(
        lambda sentences: tools.afford(prompt(sentences), max_tokens), chain, tools, max_tokens=max_tokens
    )
    return forced_text or answer


def chain_text(chain: Sequence[Sentence]) -> str:
    """Return a chain of thought so far."""
    return "".join(sentence.text for sentence in chain).lstrip()


def cued_text(chain: Sequence[Sentence]) -> str:
    """Return a chain of thought so far, and the words that its answer follows."""
    return f"{chain_text(chain)} {ANSWER_CUE}".strip()


# Two ways from an unsure sentence to queries (section 3.2.2)


async def form_queries(
    draft: Sentence, sentences: Sequence[Sentence], tools: Tools, config: FLAREConfig, *, path: str
) -> list[str]:
    """Make queries of an unsure draft."""
    if config.query == "masked":
        return [masked_query(draft.tokens, config.beta)]
    return await span_questions(draft.tokens, chain_text([*sentences, draft]), tools, config, path=path)


def masked_query(tokens: Sequence[Token], beta: float) -> str:
    """Implicit query: the sentence without the tokens whose probability is at most ``beta``, perhaps "".

    >>> masked_query([("Emma", -0.1), (" died", -0.2), (" in", -0.1), (" 1817", -3.0)], 0.4)
    'Emma died in'
    """
    # A token without a text of its own (part of a character) leaves no gap in a word.
    words = (text if math.exp(logprob) > beta or not text else " " for text, logprob in tokens)
    return " ".join("".join(words).split())


async def span_questions(
    tokens: Sequence[Token], so_far: str, tools: Tools, config: FLAREConfig, *, path: str
) -> list[str]:
    """Explicit queries: for each unsure span a question that it answers, else the sentence itself.

    ``so_far``: the answer so far with the sentence at its end.
    """
    spans = unsure_spans(tokens, config.beta)
    if not spans:
        return ["".join(text for text, _ in tokens).strip()]
    template, limit = load_template("flare_question", PROMPTS), config.max_question_tokens
    replies = []
    for number, span in enumerate(spans, 1):
        prompt = template.render({"text": so_far, "span": span})
        reply = await tools.generate(prompt, role="question", max_tokens=limit, path=f"{path}/span {number}")
        replies.append(reply.text.strip().partition("\n")[0])
    # Released code: only questions are searched for.
    return [reply for reply in replies if reply.endswith("?")]


def unsure_spans(tokens: Sequence[Token], beta: float) -> list[str]:
    """Return the spans between tokens of probability ``beta`` or less that are near each other.

    A span of punctuation alone is left out: no question asks for it.

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


METHOD = Method(
    flare,
    FLAREConfig,
    "draft each sentence, search where it is unsure, write it again (FLARE: Jiang et al. 2023)",
    published="2023-05",
)
