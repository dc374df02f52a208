"""Self-Ask with search (Press et al.: Measuring and Narrowing the Compositionality Gap in Language Models).

Findings of EMNLP 2023, arXiv 2210.03350. The model asks itself follow-up questions, reads their
intermediate answers, and states the final answer; where a search has no answer it goes on by itself. Preset
"paper" continues worked examples (the paper's file has four); the default asks a chat model without any.

Differences in both, and why:

- An intermediate answer is read by the model from k retrieved passages: there is no web search engine's
  answer box.
- There is a cap on follow-up questions, for models that never come to the final answer.
- A reply in neither form leads to the final answer, instead of the same prompt again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from corag.baselines.shared import PROMPTS, answer_from_newest, list_found_ids
from corag.baselines.transcripts import FINAL, FOLLOW_UP, INTERMEDIATE, TranscriptConfig
from corag.core.errors import BudgetExhaustedError
from corag.core.language.text import extract_answer, normalize_answer
from corag.core.method import Method
from corag.core.prompting.prompt import Prompt, Segment
from corag.core.prompting.render import render_passages
from corag.core.prompting.template import Template, load_template
from corag.core.tools import Tools
from corag.core.types import Answer, Hit, Question

# What the reader is to reply if the passages do not tell; then the model answers without them.
REFUSAL = "No relevant information found"


def reading_template() -> Template:
    """Load the reader's prompt."""
    return load_template("self_ask_read", PROMPTS)


@dataclass(frozen=True)
class SelfAskConfig(TranscriptConfig, section="self_ask"):
    """Options of Self-Ask and its transcript (fields {query}, {transcript} and {demonstrations})."""

    demonstration_count: Annotated[int, Ge(0)] = 4
    max_follow_ups: Annotated[int, Ge(1)] = 5  # FlashRAG's re-implementation
    """maximum number of follow-up questions; the paper sets no limit."""

    k: Annotated[int, Ge(1)] = 5
    """passages that an intermediate answer is read from (also ``top_k``)."""

    max_shown_words: Annotated[int, Ge(1)] = 350
    """passages are truncated to this many words in prompts."""

    max_turn_tokens: Annotated[int, Ge(1)] = 100
    """token limit of a follow-up question, or of what the model writes instead."""

    max_intermediate_tokens: Annotated[int, Ge(1)] = 64
    """token limit of an intermediate answer."""

    max_answer_tokens: Annotated[int, Ge(1)] = 64
    """token limit of the final answer, if it has to be requested."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_passage_words": "max_shown_words"}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"paper": {"max_turn_tokens": 256}, "zero_shot": {}}

    def templates(self) -> tuple[Template, ...]:
        """The transcript's prompt and the reader's."""
        return (*super().templates(), reading_template())


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up question.

    ``unaided``: no passage had the answer, the model gave its own. ``repeated``: it was asked before.
    """

    question: str
    answer: str
    passage_ids: tuple[str, ...]
    unaided: bool
    repeated: bool


@dataclass(frozen=True, slots=True)
class SelfAskAnswer(Answer):
    """Self-Ask's result.

    ``steps``: follow-up questions. ``stopped``: "answer", "max_follow_ups", "malformed" or "budget".
    """

    follow_ups: tuple[FollowUp, ...] = ()


async def self_ask(question: Question, tools: Tools, config: SelfAskConfig) -> SelfAskAnswer:
    """Answer one question with Self-Ask (paper, its variant with a search engine)."""
    follow_ups: list[FollowUp] = []
    answer, stop_reason = "", ""
    final = partial(self_ask_prompt, question, config, FINAL)
    try:
        while not stop_reason:
            with tools.reserve(final(follow_ups), config.max_answer_tokens):
                # 1. "Are follow up questions needed here:" The model asks one, or states the final answer.
                turn = await next_turn(question, follow_ups, tools, config)
                if turn.follow_up:
                    # 2. "Intermediate answer:" comes from the search engine.
                    follow_ups.append(
                        await answer_follow_up(turn.follow_up, question, follow_ups, tools, config)
                    )
                    stop_reason = "max_follow_ups" if len(follow_ups) == config.max_follow_ups else ""
                else:
                    answer, stop_reason = turn.answer, "answer" if turn.answer else "malformed"
    except BudgetExhaustedError:
        stop_reason = "budget"
    if not answer:
        # 3. "So the final answer is:" The released code adds these words itself if the model has not.
        answer = await answer_from_newest(final, follow_ups, tools, max_tokens=config.max_answer_tokens)
    return SelfAskAnswer(answer, list_found_ids(tools), len(follow_ups), stop_reason, tuple(follow_ups))


async def next_turn(
    question: Question, follow_ups: Sequence[FollowUp], tools: Tools, config: SelfAskConfig
) -> SelfAskTurn:
    """Let the model go on until it would write an intermediate answer itself, or another question."""
    prompt = self_ask_prompt(question, config, "", follow_ups)
    stop, path = (INTERMEDIATE, "\nQuestion:"), f"hop {len(follow_ups) + 1}"
    reply = await tools.generate(
        prompt, role="follow_up", max_tokens=config.max_turn_tokens, stop=stop, path=path
    )
    return parse_turn(reply.text)


async def answer_follow_up(
    follow_up: str, question: Question, follow_ups: Sequence[FollowUp], tools: Tools, config: SelfAskConfig
) -> FollowUp:
    """Search and read; where that gives no answer, let the model go on with its own (released code)."""
    path, limit = f"hop {len(follow_ups) + 1}", config.max_intermediate_tokens
    hits = await tools.search(follow_up, k=config.k, path=path)
    answer, is_refusal = "", False
    if hits:
        prompt = reading_prompt(follow_up, hits, config)
        reply = await tools.generate(prompt, role="intermediate", max_tokens=limit, path=path)
        answer = extract_answer(reply.text)
        refusal = normalize_answer(REFUSAL)
        # A reader may refuse first and go on, or reason first and refuse in its last line.
        is_refusal = any(normalize_answer(text).startswith(refusal) for text in (reply.text, answer))
    needs_own_answer = not answer or is_refusal
    if needs_own_answer:
        prompt = self_ask_prompt(question, config, f"{FOLLOW_UP} {follow_up}\n{INTERMEDIATE}", follow_ups)
        reply = await tools.generate(prompt, role="unaided", max_tokens=limit, stop=("\n",), path=path)
        answer = extract_answer(reply.text) or REFUSAL
    is_repeat = any(normalize_answer(follow_up) == normalize_answer(each.question) for each in follow_ups)
    return FollowUp(follow_up, answer, tuple(hit.passage.id for hit in hits), needs_own_answer, is_repeat)


# Prompts


def self_ask_prompt(
    question: Question, config: SelfAskConfig, cue: str, follow_ups: Sequence[FollowUp]
) -> Prompt:
    """Write the transcript so far, to be continued after ``cue``."""
    template = config.template()
    items = [{"sub_query": hop.question, "sub_answer": hop.answer} for hop in follow_ups]
    # Whether follow-up questions are needed shows in whether one follows, so it is not asked for by itself.
    follow_up_cue = " No.\n" if cue == FINAL and not follow_ups else " Yes.\n" if cue or follow_ups else ""
    transcript = [Segment(follow_up_cue), *template.items("hop", items), Segment(cue)]
    return template.render(
        {"query": question.text, "transcript": transcript, "demonstrations": config.examples()}
    )


def reading_prompt(follow_up: str, hits: Sequence[Hit], config: SelfAskConfig) -> Prompt:
    """Ask for an intermediate answer; a prompt that is too long loses the worst passages first."""
    template, passages = reading_template(), (hit.passage for hit in hits)
    segments = render_passages(passages, template, config.max_shown_words, goes_first="last")
    return template.render({"sub_query": follow_up, "passages": segments, "refusal": REFUSAL})


# Reading a turn

_INTERMEDIATE = re.compile(r"intermediate answer", re.IGNORECASE)
# The paper's words, and those that chat models write instead ("Follow-up question 2:", "Final answer:").
_MARK = re.compile(
    r"\b(?:(?P<asks>follow[ -]?up(?: question)?[ \t]*\d*[ \t*_]*:)"
    r"|so,? the final answer is[ \t*_]*:?|final answer(?: is)?[ \t*_]*:)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SelfAskTurn:
    """What a reply holds: a follow-up question, or the final answer, or neither."""

    follow_up: str = ""
    answer: str = ""


def parse_turn(reply: str) -> SelfAskTurn:
    r"""Read the first follow-up question or final answer out of a reply.

    Nothing counts from an intermediate answer on, which the model made up.

    >>> parse_turn(" Yes.\nFollow up: Who wrote Emma?\nFollow up: When was she born?")
    SelfAskTurn(follow_up='Who wrote Emma?', answer='')
    """
    turn = _INTERMEDIATE.split(reply, maxsplit=1)[0]
    mark = _MARK.search(turn)
    if mark is None:
        return SelfAskTurn()
    value = _MARK.split(turn[mark.end() :], maxsplit=1)[0].strip(" \t\n*_").split("\n", 1)[0].strip()
    return (
        SelfAskTurn(follow_up=value.strip('"')) if mark["asks"] else SelfAskTurn(answer=extract_answer(value))
    )


METHOD = Method(
    self_ask,
    SelfAskConfig,
    "ask follow-up questions and search for their answers (Self-Ask: Press et al. 2023)",
    published="2022-10",
)
