"""OpenAI's older completions: the prompt is the question, the answer is a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from corag.core.runs.rows import step_record
from corag.core.tools import Step
from corag.service.answering import AnswerResult
from corag.service.conversation import Turn
from corag.service.errors import invalid
from corag.service.http.chat import (
    ChatRequest,
    ChunkEvents,
    ParseRules,
    read_request,
    truncate_answer,
    whole_answer,
)
from corag.service.http.fields import FieldReader, require_object
from corag.service.records import public_step

_HONOURED_FIELDS = frozenset(
    "model prompt stream stream_options max_tokens temperature seed stop corag".split()
)


def parse_completion(body: Any, rules: ParseRules) -> ChatRequest:
    """Read a body, parsed from JSON. Raises :class:`CallError` naming the field that is wrong."""
    fields = FieldReader(require_object(body), rules.strict)
    fields.check(_HONOURED_FIELDS)
    prompt = body.get("prompt")
    texts = prompt if isinstance(prompt, list) else [prompt]
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise invalid("'prompt' must be one text: it is the question.", "prompt")
    return read_request(fields, [Turn("user", texts[0])], rules, ("max_tokens",))


def text_completion(
    result: AnswerResult, request: ChatRequest, count: Callable[[str], int]
) -> dict[str, Any]:
    """Return the whole answer as one object."""
    visible = truncate_answer(result, request, count)
    return whole_answer(result, request, visible, "text_completion", {"text": visible.text})


class CompletionEvents(ChunkEvents):
    """The events of one streamed answer. This protocol has no field for reasoning."""

    KIND = "text_completion"

    def _chunk(self, text: str | None, finish: str | None = None, **more: Any) -> bytes:
        return self._event({"text": text or ""}, finish, more)

    def begin(self) -> Sequence[bytes]:
        """Return nothing: the first event has the first text."""
        return []

    def step(self, step: Step) -> Sequence[bytes]:
        """Return a step's event, for programs."""
        return [self._chunk(None, corag={"step": public_step(step_record(step))})]
