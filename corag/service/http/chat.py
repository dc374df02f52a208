"""OpenAI's chat completions: parse a request body, format an answer.

Which fields are honoured, passed over and refused is in :mod:`corag.service.http.fields`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from corag.core.runs.rows import step_record
from corag.core.tools import Step
from corag.service.answering import AnswerResult, usage_record
from corag.service.citations import end_of_answer, without_sources
from corag.service.conversation import AnswerRequest, Turn
from corag.service.errors import CallError, invalid
from corag.service.http.fields import (
    MOST_SEED,
    NO_TOOLS,
    NOT_TEXT,
    FieldReader,
    flag,
    model_name,
    number,
    printable_name,
    require_object,
    whole,
)
from corag.service.http.stream import DONE, error_event, event
from corag.service.jobs import recognise_job
from corag.service.reasoning import Reasoning
from corag.service.records import public_step

ReasoningField = Literal["reasoning_content", "reasoning", "both", "none"]
_HONOURED_FIELDS = frozenset(
    "model messages stream stream_options max_tokens max_completion_tokens temperature seed stop "
    "corag".split()
)
# Roles of messages that are no part of a question, with the reason.
_OTHER_ROLES: Mapping[str, str] = {"tool": NO_TOOLS, "function": NO_TOOLS}
_SYSTEM = "a system message is no part of a question"


@dataclass(frozen=True, slots=True)
class ParseRules:
    """How bodies are read.

    Attributes:
        strict: refuse fields that are passed over otherwise.
        jobs: answer a chat page's own jobs, such as titles, by one call of the model.
        job_patterns: further regular expressions that show such a job.
    """

    strict: bool = False
    jobs: bool = True
    job_patterns: tuple[str, ...] = ()


_DEFAULT_RULES = ParseRules()


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A parsed request body.

    Attributes:
        question: the question with its settings.
        stream: whether the answer is streamed.
        include_usage: whether a stream ends with the usage.
        max_tokens: upper limit of the visible answer; None for all of it.
        stop: texts that the visible answer ends before.
        steps: whether the steps of the chain are sent, too.
        ignored: fields that were passed over, each with the reason.
        shortened: what was left out of the conversation for being too long, for the reply.
        reasoning: the field of a streamed message that has the steps.
        sources: most sources that end the visible answer; None for as many as the service lists.
    """

    question: AnswerRequest
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    steps: bool = True
    ignored: Mapping[str, str] = field(default_factory=dict)
    shortened: Mapping[str, Any] = field(default_factory=dict)
    reasoning: ReasoningField = "reasoning_content"
    sources: int | None = None


def parse_chat(body: Any, rules: ParseRules = _DEFAULT_RULES) -> ChatRequest:
    """Read a body, parsed from JSON. Raises :class:`CallError` naming the field that is wrong."""
    fields = FieldReader(require_object(body), rules.strict)
    fields.check(_HONOURED_FIELDS)
    messages = read_messages(body.get("messages"), fields)
    model = model_name(body)
    job = ""
    if rules.jobs:
        job = recognise_job([(turn.role, turn.text) for turn in messages], rules.job_patterns)
    question, earlier = split_conversation(messages)
    if not job and any(turn.role == "system" for turn in messages):
        fields.ignored["messages.system"] = _SYSTEM
    extension = fields.object("corag", "budget, steps and sources", ("budget", "steps", "sources"))
    # include_obfuscation changes nothing: there is nothing to hide here.
    options = fields.foreign_object(
        "stream_options", "include_usage", ("include_usage", "include_obfuscation")
    )
    max_tokens = fields.limit("max_completion_tokens", "max_tokens")
    stops = fields.stops()
    return ChatRequest(
        AnswerRequest(
            question,
            model,
            earlier,
            seed=whole(body.get("seed"), "seed", -MOST_SEED, MOST_SEED),
            budget=whole(extension.get("budget"), "corag.budget", 1, MOST_SEED) or 0,
            temperature=number(body.get("temperature"), "temperature", 0, 2),
            job=job,
            messages=tuple(messages) if job else (),
            max_tokens=max_tokens if job else None,
        ),
        stream=flag(body.get("stream"), "stream"),
        include_usage=flag(options.get("include_usage"), "stream_options.include_usage"),
        max_tokens=max_tokens,
        stop=stops,
        steps=flag(extension.get("steps", True), "corag.steps") and not job,
        sources=0 if job else whole(extension.get("sources"), "corag.sources", 0, MOST_SEED),
        ignored=fields.ignored,
    )


def read_messages(messages: Any, fields: FieldReader) -> list[Turn]:
    """Read the messages of a conversation: texts of system, user and assistant, oldest first.

    Parts that are no text, and messages of tools, are passed over. Raises :class:`CallError`.
    """
    if messages is None and "input" in fields.body:
        raise invalid("'input' belongs to OpenAI's responses: write 'messages'.", "messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("'messages' must be a list with at least one message.", "messages")
    turns = []
    places = [
        position
        for position, each in enumerate(messages)
        if isinstance(each, dict) and each.get("role") == "user"
    ]
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        if not isinstance(message, dict):
            raise invalid(f"{where} must be an object with role and content.", where)
        role = message.get("role")
        if role in ("user", "assistant"):
            if role == "assistant" and (message.get("tool_calls") or message.get("function_call")):
                # What is said beside a call announces it, so it goes with the call.
                fields.pass_over(f"{where}.tool_calls", NO_TOOLS)
                continue
            # Only the question must have a text: an image sent before it would else end the conversation.
            blank = position != places[-1] if places else True
            text = read_text(message.get("content"), where, fields, blank)
            turns.append(Turn(role, text if role == "user" else without_sources(text)))
        elif role in ("system", "developer"):
            turns.append(Turn("system", read_text(message.get("content"), where, fields, True)))
        elif isinstance(role, str) and role in _OTHER_ROLES and not fields.strict:
            fields.pass_over(where, _OTHER_ROLES[role])
        else:
            raise invalid(
                f"{where} has a role that is not taken here: system, developer, user, assistant or tool.",
                where,
            )
    return turns


def read_text(content: Any, where: str, fields: FieldReader, blank: bool) -> str:
    """Read a message's content; of a list of parts the texts. ``blank``: whether there may be none."""
    if isinstance(content, str):
        return content
    if content is None and blank:
        return ""
    if not isinstance(content, list):
        raise invalid(f"{where} must have text as its content: only texts are read here.", where)
    texts = []
    for position, part in enumerate(content):
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        kind = (
            part.get("type", "text") if isinstance(part, dict) else "text" if isinstance(part, str) else None
        )
        if isinstance(text, str) and kind in _TEXT_PARTS:
            texts.append(text)
        else:
            name = printable_name(kind) if isinstance(kind, str) else "(a part)"
            if fields.strict:
                raise invalid(f"{where} must have text as its content: only texts are read here.", where)
            fields.pass_over(f"{where}.content[{position}].{name}", NOT_TEXT)
    if not texts and not blank:
        raise invalid(f"{where} has no text, and only texts are read here: ask in words, too.", where)
    return "\n".join(texts)


_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


def split_conversation(messages: Sequence[Turn]) -> tuple[str, tuple[Turn, ...]]:
    """Return the last user message, and the turns before it. A system message is no part of a question."""
    turns = [turn for turn in messages if turn.role != "system"]
    while turns and turns[-1].role == "assistant" and not turns[-1].text.strip():
        turns.pop()  # some pages send the place of the answer, too
    if not turns or turns[-1].role != "user":
        raise invalid("the last message must be the user's: it is the question.", "messages")
    return turns[-1].text.strip(), tuple(turn for turn in turns[:-1] if turn.text.strip())


# --- formatting


@dataclass(frozen=True, slots=True)
class TruncatedAnswer:
    """An answer cut at ``stop`` and ``max_tokens``. ``finish``: "stop" or "length"."""

    text: str
    finish: str
    tokens: int


def truncate_answer(
    result: AnswerResult, request: ChatRequest, count: Callable[[str], int]
) -> TruncatedAnswer:
    """Cut an answer at the request's stop texts and token limit, and let it end with its sources.

    They are left out where they would exceed the limit. ``count``: returns the tokens of a text.
    """
    text = result.answer.text
    stops = [at for stop in request.stop if (at := text.find(stop)) >= 0]
    text = text[: min(stops)] if stops else text
    tokens = count(text)
    most = request.max_tokens
    if most is None or tokens <= most:
        sources = end_of_answer(result.record, request.sources or 0)
        with_sources = count(text + sources) if sources else tokens
        if most is None or with_sources <= most:
            return TruncatedAnswer(text + sources, "stop", with_sources)
        return TruncatedAnswer(text, "stop", tokens)
    low, high = 0, len(text)  # the longest beginning that has so few tokens
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= most else (low, middle - 1)
    return TruncatedAnswer(text[:low], "length", count(text[:low]))


def extension(result: AnswerResult, request: ChatRequest) -> dict[str, Any]:
    """Return the fields that OpenAI's protocol lacks: id, sources, steps, tokens by role.

    And what was passed over, what was left out for being too long, and whether it was a chat page's own job.
    """
    left_out = ("question", "answer") if request.steps else ("question", "answer", "steps", "details")
    fields = {name: value for name, value in result.record.items() if name not in left_out}
    fields["ignored"] = dict(request.ignored)
    if request.shortened:
        fields["shortened"] = dict(request.shortened)
    if request.question.job:
        fields["job"] = request.question.job
    return fields


def completion(result: AnswerResult, request: ChatRequest, count: Callable[[str], int]) -> dict[str, Any]:
    """Return the whole answer as one object."""
    visible = truncate_answer(result, request, count)
    message = {"role": "assistant", "content": visible.text, "refusal": None}
    return {
        "id": f"chatcmpl-{result.row.question.id}",
        "object": "chat.completion",
        "created": int(result.row.begun),
        "model": request.question.preset,
        "choices": [{"index": 0, "message": message, "finish_reason": visible.finish, "logprobs": None}],
        "usage": usage_record(result.row, visible.tokens),
        "corag": extension(result, request),
    }


class ChatEvents:
    """The events of one streamed answer."""

    def __init__(self, key: str, created: int, request: ChatRequest) -> None:
        self._common = {
            "id": f"chatcmpl-{key}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": request.question.preset,
        }
        self._request = request
        self._reasoning = Reasoning()

    def _delta(self, delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
        usage = {"usage": None} if self._request.include_usage else {}
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event({**self._common, "choices": [choice], **usage, **more})

    def begin(self) -> Sequence[bytes]:
        """Return the first event, which names the role."""
        return [self._delta({"role": "assistant", "content": ""})]

    def step(self, step: Step) -> Sequence[bytes]:
        """Return a step's event: as reasoning for chat clients, and whole for programs."""
        line = self._reasoning.line(step)
        # Clients that know both names would show a step twice, so it has one of them unless told otherwise.
        field_ = self._request.reasoning
        names = {"both": ("reasoning_content", "reasoning"), "none": ()}.get(field_, (field_,))
        delta = dict.fromkeys(names, line) if line else {}
        return [self._delta(delta, corag={"step": public_step(step_record(step))})]

    def end(self, result: AnswerResult, count: Callable[[str], int]) -> Sequence[bytes]:
        """Return the last events: the answer, its finish reason, and the usage if it was requested."""
        visible = truncate_answer(result, self._request, count)
        fields = extension(result, self._request)
        fields.pop("steps", None)  # each was sent when it ended
        pieces = [self._delta({"content": visible.text}), self._delta({}, visible.finish, corag=fields)]
        if self._request.include_usage:
            usage = usage_record(result.row, visible.tokens)
            pieces.append(event({**self._common, "choices": [], "usage": usage}))
        return [*pieces, DONE]

    def fail(self, error: CallError) -> Sequence[bytes]:
        """Return the events of an error: the status is sent already."""
        return [error_event(error), DONE]
