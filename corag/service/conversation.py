"""What callers ask of the service: questions with earlier turns and jobs, cut to fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corag.core.errors import BudgetExhaustedError
from corag.core.prompting.prompt import Message, Prompt, Role, Segment
from corag.core.prompting.template import load_prompt
from corag.core.tools import Tools
from corag.core.types import Answer, Question
from corag.service.follow_ups import has_lost, join_question

_PROMPTS = Path(__file__).parent / "prompts"
_REWRITTEN_TOKENS = 64  # how much longer a standalone question may be than the user's
_NOT_REWRITTEN = "{}, so this is the user's last questions together"
_JOB_TOKENS, _MOST_JOB_TOKENS = 256, 1_024  # of a title, or of five questions as JSON


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation. ``role``: "user" or "assistant"; in a job's messages "system", too."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A caller's question with its settings.

    Attributes:
        text: the question.
        preset: the name of the preset to answer it by.
        earlier: the messages before it, oldest first.
        seed: of all randomness; None for the service's own.
        budget: upper limit of its tokens; 0 for the service's own limit.
        temperature: of sampled requests; None for the preset's own.
        job: which job of a chat page's own it is, such as "title"; "" for a question.
        messages: of a job, the whole conversation, system messages included.
        max_tokens: of a job's reply; None for as many as such a reply has.
        traceparent: the caller's header of this name, of which the answer's spans are then a part.
    """

    text: str
    preset: str
    earlier: tuple[Turn, ...] = ()
    seed: int | None = None
    budget: int = 0
    temperature: float | None = None
    job: str = ""
    messages: tuple[Turn, ...] = ()
    max_tokens: int | None = None
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class AdaptedRequest:
    """A request made to fit, with what was changed.

    Attributes:
        request: the request that can be answered.
        ignored: settings that were left out, each with the reason.
        shortened: by "question", "conversation" or "job": what there was and what was kept.
    """

    request: AnswerRequest
    ignored: Mapping[str, str]
    shortened: Mapping[str, Any]


def cut_front(text: str, most: int) -> str:
    """Return the last ``most`` characters of a text at most, from the beginning of a word on.

    >>> cut_front("a long document. Who wrote it?", 16)
    'Who wrote it?'
    """
    if len(text) <= most:
        return text
    end = text[-most:]
    if text[-most - 1].isspace() or end[:1].isspace():
        return end.lstrip()
    _, blank, rest = end.partition(" ")
    # Of a text without blanks, such as Chinese, no word can be seen.
    return rest.lstrip() if blank and len(rest) >= most // 2 else end


def cut_conversation(turns: tuple[Turn, ...], most: int) -> tuple[Turn, ...]:
    """Return the latest turns that have ``most`` characters together; of the latest the end, if need be."""
    latest: list[Turn] = []
    room = most
    for turn in reversed(turns):
        if len(turn.text) > room:
            if not latest:
                latest.append(replace(turn, text=cut_front(turn.text, most)))
            break
        latest.append(turn)
        room -= len(turn.text)
    return tuple(reversed(latest))


def cut_job(turns: tuple[Turn, ...], most: int) -> tuple[tuple[Turn, ...], dict[str, int]]:
    """Return a job's messages with ``most`` characters together, and what was cut; nothing if nothing was.

    Its instruction stands at the beginning of a message or at its end, so the middle of the longest goes.
    """
    size = sum(len(turn.text) for turn in turns)
    if size <= most:
        return turns, {}
    longest = max(range(len(turns)), key=lambda position: len(turns[position].text))
    text = turns[longest].text
    half = max(0, len(text) - (size - most)) // 2
    shorter = replace(turns[longest], text=f"{text[:half]}\n...\n{text[len(text) - half :]}")
    cut_turns = (*turns[:longest], shorter, *turns[longest + 1 :])
    if sum(len(turn.text) for turn in cut_turns) > most + len("\n...\n"):  # many long messages: the latest
        cut_turns = (*(turn for turn in turns[:1] if turn.role == "system"), *cut_conversation(turns, most))
    return cut_turns, {"characters": size, "kept_characters": sum(len(turn.text) for turn in cut_turns)}


async def answer_job(question: Question, tools: Tools, request: AnswerRequest) -> Answer:
    """Answer a chat page's own job, such as a title, by one call of the model without a search."""
    # Templates want users and assistants to take turns, and not all of them know a system's words.
    messages: list[tuple[Role, str]] = []
    for turn in request.messages:
        role: Role = "assistant" if turn.role == "assistant" else "user"
        if messages and messages[-1][0] == role:
            messages[-1] = role, f"{messages[-1][1]}\n\n{turn.text}"
        elif messages or role == "user":
            messages.append((role, turn.text))
    prompt = Prompt(tuple(Message(role, (Segment(text),)) for role, text in messages))
    reply = await tools.generate(
        prompt,
        role="job",
        max_tokens=min(request.max_tokens or _JOB_TOKENS, _MOST_JOB_TOKENS),
        temperature=request.temperature or 0.0,
        path=f"job {request.job}",
    )
    return Answer(reply.text.strip(), stopped="job")


@dataclass(frozen=True, slots=True)
class StandaloneQuestion:
    """A question that can be understood without its conversation; ``note``: what its search says of it."""

    text: str
    note: str = ""


async def standalone_question(request: AnswerRequest, tools: Tools) -> StandaloneQuestion:
    """Rewrite the last question, by one call of the model, as a standalone question.

    Where the rewrite has lost the question, or the budget allows none, it is the user's last turns together.
    """
    template = load_prompt("standalone_question", "standalone_question", _PROMPTS)
    transcript = "\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in request.earlier)
    prompt = template.render({"conversation": transcript, "question": request.text})
    fallback = join_question(request.text, [turn.text for turn in request.earlier if turn.role == "user"])
    # A rewrite is as long as the question, plus what pronouns are replaced by.
    most = _REWRITTEN_TOKENS + tools.count_tokens(request.text)
    try:
        reply = await tools.generate(
            prompt, role="standalone_question", max_tokens=most, path="standalone question"
        )
    except BudgetExhaustedError:
        return StandaloneQuestion(fallback, _NOT_REWRITTEN.format("the budget allows no rewrite"))
    first, *more = reply.text.strip().splitlines() or [""]
    text = first.strip()
    if (
        text.count('"') == 2 and text.startswith('"') and text.endswith('"')
    ):  # models like to quote their rewrite
        text = text[1:-1].strip()
    is_cut = not more and reply.completions[0].finish_reason == "length"
    if is_cut or has_lost(text, request.text, [turn.text for turn in request.earlier]):
        reason = "the rewrite was cut" if is_cut else "the rewrite lost the question"
        return StandaloneQuestion(fallback, _NOT_REWRITTEN.format(reason))
    return StandaloneQuestion(text)
