"""Self-Ask with search (Press et al.: Measuring and Narrowing the Compositionality Gap in Language Models,
Findings of EMNLP 2023).

The model asks itself follow-up questions, is told their intermediate answers, and states the final answer;
where a search has no answer it goes on by itself. Preset "paper" continues worked examples (the paper's file
has four); the default asks a chat model without any. Differences in both: an intermediate answer is read by
the model from k retrieved passages, not taken from a web search engine's answer box; there is a cap on
follow-up questions; a reply in neither form leads to the final answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from baselines.forced_answer import conclude
from baselines.self_ask_config import SelfAskConfig
from baselines.transcripts import passages_found
from core.errors import BudgetExhaustedError
from core.prompting.prompt import Prompt, Segment
from core.prompting.render import render_passages
from core.prompting.shorten import reserve
from core.text import extract_answer, normalize_answer
from core.tools import Tools
from core.types import Answer, Hit, Question

FINAL = "So the final answer is:"
_INTERMEDIATE = re.compile(r"intermediate answer", re.IGNORECASE)
_MARK = re.compile(
    r"\b(?:(?P<asks>follow[ -]?up(?: question)?[ \t]*\d*[ \t*_]*:)"
    r"|so,? the final answer is[ \t*_]*:?|final answer(?: is)?[ \t*_]*:)",
    re.IGNORECASE,
)


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


@dataclass(frozen=True, slots=True)
class Turn:
    """What a reply holds: a follow-up question, or the final answer, or neither."""

    follow_up: str = ""
    answer: str = ""


async def self_ask(question: Question, tools: Tools, config: SelfAskConfig) -> SelfAskAnswer:
    """Answer one question with Self-Ask (paper, its variant with a search engine; the released demo)."""
    asked: list[FollowUp] = []
    answer, stopped = "", ""
    final = partial(self_ask_prompt, question, config, FINAL)
    try:
        while not stopped:
            with tools.holding(reserve(final(asked), config.max_answer_tokens, tools)):
                # "Are follow up questions needed here:" The model asks one, or states the final answer.
                turn = await next_turn(question, asked, tools, config)
                if turn.follow_up:
                    # "Intermediate answer:" comes from the search engine.
                    asked.append(await answered(turn.follow_up, question, asked, tools, config))
                    stopped = "max_follow_ups" if len(asked) == config.max_follow_ups else ""
                else:
                    answer, stopped = turn.answer, "answer" if turn.answer else "malformed"
    except BudgetExhaustedError:
        stopped = "budget"
    if not answer:
        # "So the final answer is:" The released code adds these words itself if the model has not.
        answer = await conclude(final, asked, tools, max_tokens=config.max_answer_tokens)
    return SelfAskAnswer(answer, passages_found(tools), len(asked), stopped, tuple(asked))


async def next_turn(
    question: Question, asked: Sequence[FollowUp], tools: Tools, config: SelfAskConfig
) -> Turn:
    """Let the model go on until it would write an intermediate answer itself, or another question."""
    prompt = self_ask_prompt(question, config, "", asked)
    stop = ("Intermediate answer:", "\nQuestion:")
    path = f"hop {len(asked) + 1}"
    reply = await tools.generate(
        prompt, role="follow_up", max_tokens=config.max_turn_tokens, stop=stop, path=path
    )
    return parse_turn(reply.text)


def parse_turn(reply: str) -> Turn:
    r"""Read the first follow-up question or final answer out of a reply.

    Nothing counts from an intermediate answer on.

    >>> parse_turn(" Yes.\nFollow up: Who wrote Emma?\nFollow up: When was she born?")
    Turn(follow_up='Who wrote Emma?', answer='')
    """
    written = _INTERMEDIATE.split(reply, maxsplit=1)[0]
    mark = _MARK.search(written)
    if mark is None:
        return Turn()
    value = _MARK.split(written[mark.end() :], maxsplit=1)[0].strip(" \t\n*_").split("\n", 1)[0].strip()
    return Turn(follow_up=value.strip('"')) if mark["asks"] else Turn(answer=extract_answer(value))


async def answered(
    follow_up: str, question: Question, asked: Sequence[FollowUp], tools: Tools, config: SelfAskConfig
) -> FollowUp:
    """Search and read.

    Where that gives no answer, let the model continue the transcript with its own (released code).
    """
    path = f"hop {len(asked) + 1}"
    hits = await tools.search(follow_up, k=config.k, path=path)
    answer, refused = "", False
    if hits:
        prompt = reading_prompt(follow_up, hits, config)
        reply = await tools.generate(
            prompt, role="intermediate", max_tokens=config.max_intermediate_tokens, path=path
        )
        answer = extract_answer(reply.text)
        refusal = normalize_answer(config.refusal)
        refused = any(normalize_answer(text).startswith(refusal) for text in (reply.text, answer))
    unaided = not answer or refused
    if unaided:
        prompt = self_ask_prompt(question, config, f"Follow up: {follow_up}\nIntermediate answer:", asked)
        reply = await tools.generate(
            prompt, role="unaided", max_tokens=config.max_intermediate_tokens, stop=("\n",), path=path
        )
        answer = extract_answer(reply.text) or config.refusal
    repeated = any(normalize_answer(follow_up) == normalize_answer(earlier.question) for earlier in asked)
    return FollowUp(follow_up, answer, tuple(hit.passage.id for hit in hits), unaided, repeated)


def reading_prompt(follow_up: str, hits: Sequence[Hit], config: SelfAskConfig) -> Prompt:
    """Ask for an intermediate answer. If the prompt is too long, passages are left out, the worst first."""
    template = config.reading_template()
    passages = render_passages(
        (hit.passage for hit in hits), template, config.max_shown_words, goes_first="last"
    )
    return template.render({"sub_query": follow_up, "passages": passages, "refusal": config.refusal})


def self_ask_prompt(question: Question, config: SelfAskConfig, cue: str, asked: Sequence[FollowUp]) -> Prompt:
    """Write the transcript so far, to be continued after ``cue``.

    Whether questions are needed shows in whether one follows.
    """
    template = config.template()
    items = [{"sub_query": hop.question, "sub_answer": hop.answer} for hop in asked]
    needed = " No.\n" if cue == FINAL and not asked else " Yes.\n" if cue or asked else ""
    transcript = [Segment(needed), *template.items("hop", items), Segment(cue)]
    return template.render(
        {"query": question.text, "transcript": transcript, "demonstrations": config.examples()}
    )
