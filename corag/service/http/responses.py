"""OpenAI's responses: the input's last message is the question, steps are a summary of reasoning.

Nothing is kept but recorded answers, so ``previous_response_id`` names one of those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from corag.core.runs.rows import step_record
from corag.core.tools import Step
from corag.service.answering import AnswerResult, usage_record
from corag.service.conversation import Turn
from corag.service.errors import CallError, invalid
from corag.service.http.chat import (
    ChatRequest,
    ParseRules,
    extension,
    read_messages,
    read_request,
    truncate_answer,
)
from corag.service.http.fields import NO_TOOLS, FieldReader, printable_name, refusal, require_object
from corag.service.http.stream import event
from corag.service.reasoning import Reasoning
from corag.service.records import public_step

_HONOURED_FIELDS = frozenset(
    "model input instructions stream stream_options max_output_tokens temperature seed stop text "
    "previous_response_id conversation prompt corag".split()
)
_NO_MESSAGE = "it is no message"


def parse_response(body: Any, rules: ParseRules) -> ChatRequest:
    """Read a body, parsed from JSON. Raises :class:`CallError` naming the field that is wrong."""
    fields = FieldReader(require_object(body), rules.strict)
    fields.check(_HONOURED_FIELDS)
    for name in ("conversation", "prompt"):  # they name what only OpenAI's service has
        if body.get(name) is not None:
            raise refusal(name)
    _check_text(fields)
    instructions = body.get("instructions")
    system = [Turn("system", instructions)] if isinstance(instructions, str) and instructions else []
    messages = [*system, *_previous(body.get("previous_response_id"), rules), *_input(fields)]
    return read_request(fields, messages, rules, ("max_output_tokens",))


def _check_text(fields: FieldReader) -> None:
    """Refuse a form of the answer other than plain text."""
    text = fields.foreign_object("text", "format", ("format",))
    form = text.get("format")
    if form is not None and (not isinstance(form, dict) or form.get("type") != "text"):
        raise refusal("text")


def _previous(key: Any, rules: ParseRules) -> list[Turn]:
    """Return question and answer of the response that this one follows."""
    if key is None:
        return []
    record = rules.find(key.removeprefix("resp_")) if isinstance(key, str) else None
    if record is None:
        raise invalid(
            "there is no such response here, or no more: send the messages themselves as input.",
            "previous_response_id",
            "previous_response_not_found",
        )
    return [Turn("user", str(record["question"])), Turn("assistant", str(record["answer"]))]


def _input(fields: FieldReader) -> list[Turn]:
    value = fields.body.get("input")
    if isinstance(value, str):
        return [Turn("user", value)]
    if not isinstance(value, list) or not value:
        raise invalid("'input' must be a text, or a list with at least one message.", "input")
    messages = []
    for position, item in enumerate(value):
        kind = item.get("type", "message") if isinstance(item, dict) else "message"
        if kind == "message":
            messages.append(item)
        else:
            name = printable_name(kind) if isinstance(kind, str) else "(an item)"
            reason = NO_TOOLS if name.endswith(("_call", "_call_output")) else _NO_MESSAGE
            fields.pass_over(f"input[{position}].{name}", reason)
    if not messages:
        raise invalid("'input' has no message: the last one is the question.", "input")
    return read_messages(messages, fields)


def response_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a usage of chat completions in the words of responses."""
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": usage["completion_tokens_details"],
        "total_tokens": usage["total_tokens"],
    }


def response(result: AnswerResult, request: ChatRequest, count: Callable[[str], int]) -> dict[str, Any]:
    """Return the whole answer as one object."""
    key = result.row.question.id
    lines = "".join(map(Reasoning().line, result.row.steps)) if request.steps else ""
    summary = [_reasoning_item(key, lines)] if lines and request.reasoning != "none" else []
    visible = truncate_answer(result, request, count)
    return {
        **_frame(key, int(result.row.begun), request),
        "status": "incomplete" if visible.finish == "length" else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if visible.finish == "length" else None,
        "output": [*summary, _message_item(key, visible.text)],
        "usage": response_usage(usage_record(result.row, visible.tokens)),
        "corag": extension(result, request),
    }


def _frame(key: str, created: int, request: ChatRequest) -> dict[str, Any]:
    """Return what is known of a response before it is there."""
    return {
        "id": f"resp_{key}",
        "object": "response",
        "created_at": created,
        "model": request.question.preset,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": request.max_tokens,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": False,
        "temperature": request.question.temperature,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def _reasoning_item(key: str, text: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"id": f"rs_{key}", "type": "reasoning", "summary": summary}


def _message_item(key: str, text: str | None) -> dict[str, Any]:
    """Return the message of an answer; of one that is still to come (None) the empty one."""
    return {
        "id": f"msg_{key}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress" if text is None else "completed",
        "content": [] if text is None else [_text_part(text)],
    }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponseEvents:
    """The events of one streamed answer."""

    def __init__(self, key: str, created: int, request: ChatRequest) -> None:
        self._key, self._created, self._request = key, created, request
        self._number = 0
        self._lines = ""
        self._reasoning = Reasoning()

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return event({"type": kind, "sequence_number": self._number - 1, **fields}, kind)

    def begin(self) -> Sequence[bytes]:
        """Return the events of a response that has begun."""
        frame = _frame(self._key, self._created, self._request)
        return [self._event(f"response.{kind}", response=frame) for kind in ("created", "in_progress")]

    def step(self, step: Step) -> Sequence[bytes]:
        """Return the events of a step: a piece of the summary of reasoning."""
        line = self._reasoning.line(step) if self._request.reasoning != "none" else ""
        if not line:
            return []
        events = [] if self._lines else self._begin_reasoning()
        self._lines += line
        record = public_step(step_record(step))
        kind = "response.reasoning_summary_text.delta"
        return [*events, self._event(kind, **self._summary_place, delta=line, corag={"step": record})]

    @property
    def _summary_place(self) -> dict[str, Any]:
        return {"item_id": f"rs_{self._key}", "output_index": 0, "summary_index": 0}

    def _begin_reasoning(self) -> list[bytes]:
        item = _reasoning_item(self._key, "")
        part = {"type": "summary_text", "text": ""}
        return [
            self._event("response.output_item.added", output_index=0, item=item),
            self._event("response.reasoning_summary_part.added", **self._summary_place, part=part),
        ]

    def _end_reasoning(self) -> list[bytes]:
        item_fields, text = self._summary_place, self._lines
        part = {"type": "summary_text", "text": text}
        item = _reasoning_item(self._key, text)
        return [
            self._event("response.reasoning_summary_text.done", **item_fields, text=text),
            self._event("response.reasoning_summary_part.done", **item_fields, part=part),
            self._event("response.output_item.done", output_index=0, item=item),
        ]

    def end(self, result: AnswerResult, count: Callable[[str], int]) -> Sequence[bytes]:
        """Return the last events: the answer, then the whole response."""
        whole = response(result, self._request, count)
        whole["corag"].pop("steps", None)  # each was sent when it ended
        message = whole["output"][-1]
        text = message["content"][0]["text"]
        number = 1 if self._lines else 0
        item_fields = {"item_id": message["id"], "output_index": number, "content_index": 0}
        opening, part = _message_item(self._key, None), _text_part(text)
        return [
            *(self._end_reasoning() if self._lines else ()),
            self._event("response.output_item.added", output_index=number, item=opening),
            self._event("response.content_part.added", **item_fields, part=_text_part("")),
            self._event("response.output_text.delta", **item_fields, delta=text, logprobs=[]),
            self._event("response.output_text.done", **item_fields, text=text, logprobs=[]),
            self._event("response.content_part.done", **item_fields, part=part),
            self._event("response.output_item.done", output_index=number, item=message),
            self._event(f"response.{whole['status']}", response=whole),
        ]

    def fail(self, error: CallError) -> Sequence[bytes]:
        """Return the event of an error: the status is sent already."""
        reason = {"code": error.code or "server_error", "message": str(error)}
        frame = _frame(self._key, self._created, self._request)
        return [self._event("response.failed", response={**frame, "status": "failed", "error": reason})]
