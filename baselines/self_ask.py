"""Self-Ask with search (Press et al.: Measuring and Narrowing the Compositionality Gap in Language Models).

Findings of EMNLP 2023, arXiv 2210.03350. The model asks itself follow-up questions, is told their
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
from typing import Any, ClassVar

from baselines.forced_answer import answer_from_newest
from baselines.shared import PROMPTS, passages_found
from baselines.transcripts import FINAL, FOLLOW_UP, INTERMEDIATE, TranscriptConfig
from core.errors import BudgetExhaustedError, ConfigError
from core.prompting.prompt import Prompt, Segment
from core.prompting.render import render_passages
from core.prompting.template import Template, load_prompt
from core.text import extract_answer, normalize_answer
from core.tools import Tools
from core.types import Answer, Hit, Question


@dataclass(frozen=True)
class SelfAskConfig(TranscriptConfig):
    """Options of Self-Ask, with those of its transcript (fields {query}, {transcript} and {demonstrations}).

    Attributes:
        max_follow_ups: follow-up questions at most; the paper sets no cap.
        k: passages that an intermediate answer is read from (also ``top_k``).
        max_shown_words: passages are cut to so many words in prompts.
        refusal: what the reader says when the passages do not tell; then the model answers by itself.
        max_turn_tokens: most tokens of a follow-up question, or of what the model writes in its place.
        max_intermediate_tokens: most tokens of an intermediate answer.
        max_answer_tokens: most tokens of the final answer, where the model has to be asked for it.
        reading_prompt: a shipped name, a file, or a text with {sub_query}, {passages} and {refusal}.
    """

    demonstration_count: int = 4
    max_follow_ups: int = 5  # FlashRAG's re-implementation
    k: int = 5
    max_shown_words: int = 350
    refusal: str = "No relevant information found"
    max_turn_tokens: int = 100
    max_intermediate_tokens: int = 64
    max_answer_tokens: int = 64
    reading_prompt: str = "self_ask_read"

    NAME: ClassVar[str] = "self_ask"
    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k", "max_passage_words": "max_shown_words"}
    POINTERS: ClassVar[dict[str, str]] = {
        "max_iterations": "what is counted are the follow-up questions: write --self_ask.max_follow_ups."
    }
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"paper": {"max_turn_tokens": 256}, "zero_shot": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.max_follow_ups, self.k, self.max_shown_words) < 1:
            raise ConfigError(
                "self_ask needs max_follow_ups, k and max_shown_words of at least 1, but they are "
                f"{self.max_follow_ups}, {self.k} and {self.max_shown_words}."
            )
        if not normalize_answer(self.refusal):
            raise ConfigError("self_ask needs a refusal: what the reader says when the passages do not tell.")

    def reading_template(self) -> Template:
        """Load the reader's prompt."""
        return load_prompt(self.reading_prompt, "self_ask_read", PROMPTS)

    def templates(self) -> tuple[Template, ...]:
        """The transcript's prompt and the reader's."""
        return (*super().templates(), self.reading_template())


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up question.

    ``unaided``: no passage told, so the model answered by itself. ``repeated``: it was asked before.
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
    asked: list[FollowUp] = []
    answer, stopped = "", ""
    final = partial(self_ask_prompt, question, config, FINAL)
    try:
        while not stopped:
            with tools.hold_back(final(asked), config.max_answer_tokens):
                # 1. "Are follow up questions needed here:" The model asks one, or states the final answer.
                turn = await next_turn(question, asked, tools, config)
                if turn.follow_up:
                    # 2. "Intermediate answer:" comes from the search engine.
                    asked.append(await answered(turn.follow_up, question, asked, tools, config))
                    stopped = "max_follow_ups" if len(asked) == config.max_follow_ups else ""
                else:
                    answer, stopped = turn.answer, "answer" if turn.answer else "malformed"
    except BudgetExhaustedError:
        stopped = "budget"
    if not answer:
        # 3. "So the final answer is:" The released code adds these words itself if the model has not.
        answer = await answer_from_newest(final, asked, tools, max_tokens=config.max_answer_tokens)
    return SelfAskAnswer(answer, passages_found(tools), len(asked), stopped, tuple(asked))


async def next_turn(
    question: Question, asked: Sequence[FollowUp], tools: Tools, config: SelfAskConfig
) -> SelfAskTurn:
    """Let the model go on until it would write an intermediate answer itself, or another question."""
    prompt = self_ask_prompt(question, config, "", asked)
    stop, path = (INTERMEDIATE, "\nQuestion:"), f"hop {len(asked) + 1}"
    reply = await tools.generate(
        prompt, role="follow_up", max_tokens=config.max_turn_tokens, stop=stop, path=path
    )
    return parse_turn(reply.text)


async def answered(
    follow_up: str, question: Question, asked: Sequence[FollowUp], tools: Tools, config: SelfAskConfig
) -> FollowUp:
    """Search and read; where that gives no answer, let the model go on with its own (released code)."""
    path, limit = f"hop {len(asked) + 1}", config.max_intermediate_tokens
    hits = await tools.search(follow_up, k=config.k, path=path)
    answer, refused = "", False
    if hits:
        prompt = reading_prompt(follow_up, hits, config)
        reply = await tools.generate(prompt, role="intermediate", max_tokens=limit, path=path)
        answer = extract_answer(reply.text)
        refusal = normalize_answer(config.refusal)
        # A reader may refuse first and go on, or reason first and refuse in its last line.
        refused = any(normalize_answer(text).startswith(refusal) for text in (reply.text, answer))
    unaided = not answer or refused
    if unaided:
        prompt = self_ask_prompt(question, config, f"{FOLLOW_UP} {follow_up}\n{INTERMEDIATE}", asked)
        reply = await tools.generate(prompt, role="unaided", max_tokens=limit, stop=("\n",), path=path)
        answer = extract_answer(reply.text) or config.refusal
    repeated = any(normalize_answer(follow_up) == normalize_answer(earlier.question) for earlier in asked)
    return FollowUp(follow_up, answer, tuple(hit.passage.id for hit in hits), unaided, repeated)


# Prompts


def self_ask_prompt(question: Question, config: SelfAskConfig, cue: str, asked: Sequence[FollowUp]) -> Prompt:
    """Write the transcript so far, to be continued after ``cue``."""
    template = config.template()
    items = [{"sub_query": hop.question, "sub_answer": hop.answer} for hop in asked]
    # Whether follow-up questions are needed shows in whether one follows, so it is not asked for by itself.
    needed = " No.\n" if cue == FINAL and not asked else " Yes.\n" if cue or asked else ""
    transcript = [Segment(needed), *template.items("hop", items), Segment(cue)]
    return template.render(
        {"query": question.text, "transcript": transcript, "demonstrations": config.examples()}
    )


def reading_prompt(follow_up: str, hits: Sequence[Hit], config: SelfAskConfig) -> Prompt:
    """Ask for an intermediate answer; a prompt that is too long loses the worst passages first."""
    template, found = config.reading_template(), (hit.passage for hit in hits)
    passages = render_passages(found, template, config.max_shown_words, goes_first="last")
    return template.render({"sub_query": follow_up, "passages": passages, "refusal": config.refusal})


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
    written = _INTERMEDIATE.split(reply, maxsplit=1)[0]
    mark = _MARK.search(written)
    if mark is None:
        return SelfAskTurn()
    value = _MARK.split(written[mark.end() :], maxsplit=1)[0].strip(" \t\n*_").split("\n", 1)[0].strip()
    return (
        SelfAskTurn(follow_up=value.strip('"')) if mark["asks"] else SelfAskTurn(answer=extract_answer(value))
    )
