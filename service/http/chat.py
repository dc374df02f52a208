"""OpenAI's chat completions: what a body asks for, and how an answer is written.

What has a meaning here is honoured. What has none is refused with a sentence: a parameter that is quietly
left out would let a caller believe that it had worked. See docs/guides/service.md for the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.runs.rows import step_record
from core.tools import GenerateStep, SearchStep, Step
from service.answering import Asked, Given, Turn, usage_record
from service.errors import invalid
from service.records import public_step

MOST_STOPS = 4  # as OpenAI has it
_MOST_SEED = 2**63 - 1
_LIMITS = ("max_completion_tokens", "max_tokens")  # two names for one thing; the newer counts
_TITLES_TOLD = 5  # of a search, in the reasoning that a chat client shows

# Those that change nothing of an answer, whatever they are.
_WITHOUT_EFFECT = frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key parallel_tool_calls verbosity "
    "prompt_cache_retention".split()
)
# Those that are taken with these values only: they say what is done anyway.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_p": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}
_HONOURED = frozenset(
    "model messages stream stream_options max_tokens max_completion_tokens temperature seed stop "
    "corag".split()
)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a body asks for.

    Attributes:
        asked: the question.
        stream: whether the answer is streamed.
        include_usage: whether a stream ends with what was spent.
        max_tokens: of the answer as it is shown, None for all of it.
        stop: what the answer ends before.
        steps: whether the chain is told, too.
    """

    asked: Asked
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    steps: bool = True


def parse_chat(body: Any) -> ChatRequest:
    """Read a body, parsed from JSON. Raises :class:`CallError` naming the field that is wrong."""
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object.")
    _check_fields(body)
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise invalid(
            "name a model, one of those that GET /v1/models lists.", "model", "missing_required_parameter"
        )
    question, earlier = _conversation(body.get("messages"))
    extension = _object(body, "corag", "budget and steps", ("budget", "steps"))
    # include_obfuscation changes nothing: there is nothing to hide here.
    options = _object(body, "stream_options", "include_usage", ("include_usage", "include_obfuscation"))
    newer, older = (_whole(body.get(name), name, 1, _MOST_SEED) for name in _LIMITS)
    return ChatRequest(
        Asked(
            question,
            model,
            earlier,
            seed=_whole(body.get("seed"), "seed", -_MOST_SEED, _MOST_SEED),
            budget=_whole(extension.get("budget"), "corag.budget", 1, _MOST_SEED) or 0,
            temperature=_number(body.get("temperature"), "temperature", 0, 2),
        ),
        stream=_flag(body.get("stream"), "stream"),
        include_usage=_flag(options.get("include_usage"), "stream_options.include_usage"),
        max_tokens=older if newer is None else newer,
        stop=_stops(body.get("stop")),
        steps=_flag(extension.get("steps", True), "corag.steps"),
    )


def _check_fields(body: Mapping[str, Any]) -> None:
    """Refuse what has no meaning here."""
    for name, value in body.items():
        if name in _HONOURED or name in _WITHOUT_EFFECT or value is None:
            continue
        if name not in _ONLY:
            raise invalid(f"there is no parameter '{_shown(name)}' here.", _shown(name), "unknown_parameter")
        # 1 == True, but only one of them is a number of answers.
        if not any(
            value == only and isinstance(value, bool) == isinstance(only, bool) for only in _ONLY[name]
        ):
            raise invalid(
                f"'{name}' has no meaning for answers that come of a chain: leave it out.",
                name,
                "unsupported_parameter",
            )


def _shown(name: str) -> str:
    return name if len(name) <= 64 and name.isidentifier() else "(its name)"


def _conversation(messages: Any) -> tuple[str, tuple[Turn, ...]]:
    """Return the last user message, and the turns before it. A system message is no part of a question."""
    if not isinstance(messages, list) or not messages:
        raise invalid("'messages' must be a list with at least one message.", "messages")
    turns = []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if not isinstance(message, dict):
            raise invalid(f"{where} must be an object with role and content.", where)
        role = message.get("role")
        if role in ("user", "assistant"):
            turns.append(Turn(role, _text(message.get("content"), where, blank=role == "assistant")))
        elif role not in ("system", "developer"):
            raise invalid(
                f"{where} has a role that is not taken here: system, developer, user or assistant.", where
            )
    if not turns or turns[-1].role != "user":
        raise invalid("the last message must be the user's: it is the question.", "messages")
    return turns[-1].text.strip(), tuple(turn for turn in turns[:-1] if turn.text.strip())


def _text(content: Any, where: str, *, blank: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and blank:
        return ""
    if isinstance(content, list):
        texts = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
            return "\n".join(str(text) for text in texts)
    raise invalid(f"{where} must have text as its content: only texts are read here.", where)


def _object(body: Mapping[str, Any], name: str, takes: str, fields: Sequence[str]) -> Mapping[str, Any]:
    """Return an object within the body, which has no other ``fields``. ``takes``: those to speak of."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"'{name}' must be an object.", name, "invalid_type")
    if any(field not in fields for field in value):
        raise invalid(f"'{name}' takes {takes}.", name, "unknown_parameter")
    return value


def _whole(value: Any, name: str, least: int, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise invalid(f"'{name}' must be a whole number from {least:,} to {most:,}.", name)
    return value


def _number(value: Any, name: str, least: float, most: float) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise invalid(f"'{name}' must be a number from {least} to {most}.", name)
    return float(value) if math.isfinite(value) else None


def _flag(value: Any, name: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise invalid(f"'{name}' must be true or false.", name, "invalid_type")
    return bool(value)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if (
        not isinstance(stops, list)
        or len(stops) > MOST_STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise invalid(f"'stop' must be a text, or a list of up to {MOST_STOPS}.", "stop")
    return tuple(stops)


# --- what is written


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer as a caller wants it: cut by stop and max_tokens. ``finish``: "stop" or "length"."""

    text: str
    finish: str
    tokens: int


def shown(given: Given, request: ChatRequest, count: Callable[[str], int]) -> Shown:
    """Cut an answer as was asked. ``count``: tokens of a text."""
    text = given.answer.text
    found = [at for stop in request.stop if (at := text.find(stop)) >= 0]
    text = text[: min(found)] if found else text
    tokens = count(text)
    most = request.max_tokens
    if most is None or tokens <= most:
        return Shown(text, "stop", tokens)
    low, high = 0, len(text)  # the longest beginning that has so few tokens
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= most else (low, middle - 1)
    return Shown(text[:low], "length", count(text[:low]))


def extension(given: Given, request: ChatRequest) -> dict[str, Any]:
    """Return what OpenAI's protocol has no field for: id, sources, steps, tokens by role."""
    left_out = ("question", "answer") if request.steps else ("question", "answer", "steps", "details")
    return {name: value for name, value in given.record.items() if name not in left_out}


def completion(given: Given, request: ChatRequest, count: Callable[[str], int]) -> dict[str, Any]:
    """Return the whole answer as one object."""
    said = shown(given, request, count)
    message = {"role": "assistant", "content": said.text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": said.finish, "logprobs": None}
    return {
        "id": f"chatcmpl-{given.row.question.id}",
        "object": "chat.completion",
        "created": int(given.row.begun),
        "model": request.asked.preset,
        "choices": [choice],
        "usage": usage_record(given.row, said.tokens),
        "corag": extension(given, request),
    }


class Deltas:
    """The pieces of one streamed answer."""

    def __init__(self, key: str, created: int, request: ChatRequest) -> None:
        self._common = {
            "id": f"chatcmpl-{key}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": request.asked.preset,
        }
        self._request = request

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        usage = {"usage": None} if self._request.include_usage else {}
        return {**self._common, "choices": [choice], **usage, **more}

    def begin(self) -> dict[str, Any]:
        """Say who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def step(self, step: Step) -> dict[str, Any]:
        """Tell a step: as reasoning, which chat clients show, and whole, for programs."""
        told = reasoning(step)
        # Two names are in use for it.
        delta = {"reasoning_content": told, "reasoning": told} if told else {}
        return self._chunk(delta, corag={"step": public_step(step_record(step))})

    def end(self, given: Given, count: Callable[[str], int]) -> Sequence[dict[str, Any]]:
        """Say the answer, how it ended, and what it cost if that is wanted."""
        said = shown(given, self._request, count)
        found = extension(given, self._request)
        found.pop("steps", None)  # they have been told
        pieces = [
            self._chunk({"content": said.text}),
            self._chunk({}, said.finish, corag=found),
        ]
        if self._request.include_usage:
            pieces.append({**self._common, "choices": [], "usage": usage_record(given.row, said.tokens)})
        return pieces


def reasoning(step: Step) -> str:
    """Tell a step in a line, for people; "" if there is nothing to tell."""
    place = f"[{step.path}] " if step.path else ""
    if isinstance(step, SearchStep):
        if not step.query.strip():
            return ""
        titles = list(dict.fromkeys(hit.passage.title or hit.passage.id for hit in step.hits))
        more = f" and {len(titles) - _TITLES_TOLD} more" if len(titles) > _TITLES_TOLD else ""
        return (
            f"{place}searched: {step.query}\n  found: {'; '.join(titles[:_TITLES_TOLD]) or 'nothing'}{more}\n"
        )
    if isinstance(step, GenerateStep):
        role = step.role.replace("_", " ")
        return "".join(f"{place}{role}: {' '.join(text.split())}\n" for text in step.texts if text.strip())
    return ""
