"""OpenAI's chat completions: what a body asks for, and how an answer is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from corag.core.runs.rows import Row, step_record
from corag.core.system.process import unix_time
from corag.core.tools import GenerateStep, Step
from corag.service.citations import end_of_answer, without_sources
from corag.service.conversation import FINAL_ROLES, AnswerRequest, Turn, is_job
from corag.service.errors import CallError, invalid
from corag.service.http.body import NO_TOOLS, ONLY_TEXT, ChatBody, ChatMessage, Extension
from corag.service.http.stream import BEAT, DONE, event
from corag.service.options import AnswersOptions
from corag.service.reasoning import reasoning_line
from corag.service.records import public_record, public_step

_NO_FINAL_CALL = "this method has no call that writes the answer alone"
ANSWERED_OTHERWISE = CallError(
    502, "the model was lost while it wrote, and then wrote something else: ask again.", "answer_lost"
)


def read_chat(body: ChatBody, options: AnswersOptions) -> AnswerRequest:
    """Return what a body asks for, the rest as the service's options say.

    Raises :class:`CallError` if it ends with no question.
    """
    ignored = body.ignored
    every = _read_turns(body.messages, ignored)
    turns = [turn for turn in every if turn.role != "system"]
    while turns and turns[-1].role == "assistant" and not turns[-1].text.strip():
        turns.pop()  # some pages send the place of the answer, too
    if not turns or turns[-1].role != "user":
        raise invalid("the last message must be the user's: it is the question.", "messages")
    *earlier, last = turns
    job, extension = is_job(last.text), body.corag or Extension()
    limits = [each for each in (body.max_completion_tokens, body.max_tokens) if each is not None]
    return AnswerRequest(
        last.text.strip(),
        body.model,
        tuple(turn for turn in earlier if turn.text.strip()),
        seed=body.seed,
        budget=extension.budget,
        job=job,
        max_tokens=limits[0] if limits and limits[0] > 0 else None,
        stop=tuple(filter(None, body.stop or ())),
        system="\n\n".join(turn.text.strip() for turn in every if turn.role == "system"),
        sources=0 if job else options.sources if extension.sources is None else extension.sources,
        ignored=ignored,
    )


def _read_turns(messages: Sequence[ChatMessage], ignored: dict[str, str]) -> list[Turn]:
    """Return the turns of system, user and assistant, oldest first; ``ignored`` gets what else there is."""
    turns = []
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        if message.role in ("tool", "function") or message.tool_calls:
            # Text beside a call announces it, so it goes with the call.
            ignored[where] = NO_TOOLS
            continue
        text, is_whole = message.text()
        if not is_whole:
            ignored[f"{where}.content"] = ONLY_TEXT
        role = "system" if message.role == "developer" else message.role
        turns.append(Turn(role, without_sources(text) if role == "assistant" else text))
    return turns


# --- writing


def show(row: Row, request: AnswerRequest) -> tuple[str, str, dict[str, Any]]:
    """Return an answer as it is shown, why it ends ("stop" or "length"), and what OpenAI's protocol lacks.

    The latter are id, sources, steps, tokens by role, what was passed over, and what was left out for being
    too long.
    """
    record = public_record(row)
    roles = ("job",) if request.job else FINAL_ROLES
    final_steps = [step for step in row.steps if isinstance(step, GenerateStep) and step.role in roles]
    wishes = {"messages.system": request.system, "max_tokens": request.max_tokens, "stop": request.stop}
    unheard = {name for name, wish in wishes.items() if wish and not final_steps and not request.job}
    fields = {name: value for name, value in record.items() if name != "answer"}
    fields["ignored"] = {**request.ignored, **dict.fromkeys(unheard, _NO_FINAL_CALL)}
    if request.shortened:
        fields["shortened"] = request.shortened
    is_cut = final_steps and "length" in final_steps[-1].finish_reasons
    if is_cut and not request.max_tokens:  # of a reply that went on behind its answer the answer is whole
        is_cut = final_steps[-1].texts[-1].rstrip().endswith(row.answer.text if row.answer else "")
    text = record["answer"] + end_of_answer(record, request.sources)
    return text, "length" if is_cut else "stop", fields


def usage_record(row: Row, count: Callable[[str], int]) -> dict[str, Any]:
    """Return a question's ledger in OpenAI's ``usage`` format, summed over all its calls.

    ``count``: returns the tokens of a text.
    """
    total = row.total_usage
    answer_tokens = count(row.answer.text if row.answer else "")
    return {
        "prompt_tokens": total.prompt,
        "completion_tokens": total.generated,
        "total_tokens": total.total,
        "prompt_tokens_details": {"cached_tokens": total.cached},
        "completion_tokens_details": {"reasoning_tokens": max(0, total.generated - answer_tokens)},
    }


def completion(row: Row, request: AnswerRequest, count: Callable[[str], int]) -> dict[str, Any]:
    """Return the whole answer as one object. ``count``: returns the tokens of a text."""
    text, finish, extension = show(row, request)
    message = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": f"chatcmpl-{row.question.id}",
        "object": "chat.completion",
        "created": int(row.begun),
        "model": request.preset,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": usage_record(row, count),
        "corag": extension,
    }


class ChatEvents:
    """The events of one streamed answer. ``count``: returns the tokens of a text, if the usage is wanted."""

    def __init__(self, key: str, request: AnswerRequest, count: Callable[[str], int] | None) -> None:
        self._common = {
            "id": f"chatcmpl-{key}",
            "object": "chat.completion.chunk",
            "created": int(unix_time()),
            "model": request.preset,
        }
        self._request, self._count = request, count
        self._shown = ""  # of the answer's text

    def _delta(self, delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
        usage = {"usage": None} if self._count else {}
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event({**self._common, "choices": [choice], **usage, **more})

    def begin(self) -> Sequence[bytes]:
        """Return the first event, which names the role."""
        return [self._delta({"role": "assistant", "content": ""})]

    def write(self, news: Step | str | Row | None) -> Sequence[bytes]:
        """Return the events of a step that has ended, the answer so far, its end, or a pause."""
        if news is None:
            return [BEAT]
        if isinstance(news, Row):
            return self._end(news)
        if isinstance(news, str):
            return self._grow(news)
        return self._step(news)

    def _grow(self, text: str) -> Sequence[bytes]:
        # One that a server has begun anew is shown once it has caught up.
        if text == self._shown or not text.startswith(self._shown):
            return []
        new, self._shown = text[len(self._shown) :], text
        return [self._delta({"content": new})]

    def _step(self, step: Step) -> Sequence[bytes]:
        """Return a step's event: as reasoning for chat clients, and whole for programs."""
        # What has been shown as the answer is no reasoning, and a title has none.
        line = "" if self._shown or self._request.job else reasoning_line(step)
        delta = {"reasoning_content": line} if line else {}
        return [self._delta(delta, corag={"step": public_step(step_record(step))})]

    def _end(self, row: Row) -> Sequence[bytes]:
        """Return the last events: what is left of the answer, its finish reason, the usage if requested."""
        text, finish, extension = show(row, self._request)
        if not text.startswith(self._shown):
            return self.fail(ANSWERED_OTHERWISE)
        extension.pop("steps", None)  # each was sent when it ended
        rest = text[len(self._shown) :]
        pieces = [self._delta({"content": rest}), self._delta({}, finish, corag=extension)]
        if self._count:
            usage = usage_record(row, self._count)
            pieces.append(event({**self._common, "choices": [], "usage": usage}))
        return [*pieces, DONE]

    def fail(self, error: CallError) -> Sequence[bytes]:
        """Return the events of an error: the status is sent already."""
        return [event(error.body), DONE]
