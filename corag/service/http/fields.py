"""Fields of a request body: which are honoured, which are passed over and named, and which are refused.

What does not change an answer's truth is passed over and named in the reply (``corag.ignored``): clients
send such fields by themselves. What would make a caller believe that something else had happened is refused:
several answers, a tool that must be called, log-probabilities, a form of the answer. A service with
``strict`` refuses whatever has no meaning here. See docs/guides/service.md for the tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corag.service.errors import CallError, invalid

MOST_SEED = 2**63 - 1
MOST_STRICT_STOPS = 4  # as OpenAI has it
_MOST_NAMES = 64  # fields named in one reply

NO_EFFECT = "it changes no answer here"
UNKNOWN_FIELD = "there is no such parameter here"
CHAIN = "it has no meaning for answers that come of a chain"
NO_TOOLS = "no tools are called here"
NOT_TEXT = "only texts are read here"

# Fields that never change an answer, whatever they say.
_WITHOUT_EFFECT = frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key parallel_tool_calls verbosity "
    "prompt_cache_retention".split()
)
# Fields with the values that ask for what is done anyway.
_DONE_ANYWAY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "top_p": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "background": (False,),
    "include": ([],),
    "truncation": ("auto", "disabled"),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}
# Known fields whose other values are passed over.
_PASSED_OVER: Mapping[str, str] = {
    **dict.fromkeys(
        "best_of top_p top_k min_p presence_penalty frequency_penalty repetition_penalty logit_bias "
        "reasoning_effort reasoning thinking prediction include".split(),
        CHAIN,
    ),
    **dict.fromkeys(("tools", "functions", "max_tool_calls", "web_search_options"), NO_TOOLS),
}


@dataclass(slots=True)
class FieldReader:
    """The fields of one body.

    Attributes:
        body: the body, an object.
        strict: refuse what is passed over otherwise.
        ignored: what was passed over, by the name of the field, with the reason.
    """

    body: Mapping[str, Any]
    strict: bool = False
    ignored: dict[str, str] = field(default_factory=dict)

    def pass_over(self, name: str, reason: str, code: str = "unsupported_parameter") -> None:
        """Note a field that is passed over. Raises :class:`CallError` if the service is strict."""
        if self.strict:
            raise invalid(f"'{name}': {reason}; leave it out.", name, code)
        if len(self.ignored) < _MOST_NAMES or name in self.ignored:
            self.ignored[name] = reason
        else:
            self.ignored["(others)"] = "further fields that are not listed"

    def check(self, honoured_names: frozenset[str]) -> None:
        """Pass over or refuse every field that is not among the honoured ones."""
        for name, value in self.body.items():
            if name in honoured_names or value is None:
                continue
            if name in _WITHOUT_EFFECT:
                # Even a strict service takes these: they ask for nothing that an answer could lack.
                self.ignored[name] = NO_EFFECT
            elif not any(_same(value, usual) for usual in _DONE_ANYWAY.get(name, ())):
                self._pass_over_or_refuse(name, value)

    def _pass_over_or_refuse(self, name: str, value: Any) -> None:
        if name in _PASSED_OVER:
            self.pass_over(name, _PASSED_OVER[name])
        elif name not in _DONE_ANYWAY:
            self.pass_over(printable_name(name), UNKNOWN_FIELD, "unknown_parameter")
        elif name == "modalities" and isinstance(value, list) and "text" in value:
            self.pass_over(name, NOT_TEXT)
        elif name in ("tool_choice", "function_call") and _leaves_open(value):
            self.pass_over(name, NO_TOOLS)
        else:
            raise refusal(name)

    def object(self, name: str, takes: str, names: Sequence[str]) -> Mapping[str, Any]:
        """Return an object within the body that is a field of ours, so it has no other ``names``.

        ``takes``: those to speak of.
        """
        value = self._object(name)
        if any(each not in names for each in value):
            raise invalid(f"'{name}' takes {takes}.", name, "unknown_parameter")
        return value

    def foreign_object(self, name: str, takes: str, names: Sequence[str]) -> Mapping[str, Any]:
        """Return an object within the body, as :meth:`object` does; other fields in it are passed over."""
        if self.strict:
            return self.object(name, takes, names)
        value = self._object(name)
        for each in value:
            if each not in names:
                self.pass_over(f"{name}.{printable_name(each)}", UNKNOWN_FIELD)
        return value

    def _object(self, name: str) -> Mapping[str, Any]:
        value = self.body.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise invalid(f"'{name}' must be an object.", name, "invalid_type")
        return value

    def limit(self, *names: str) -> int | None:
        """Return a number of tokens under several names, of which the first that is set counts."""
        values = [self._limit(name) for name in names]
        return next((value for value in values if value is not None), None)

    def _limit(self, name: str) -> int | None:
        value = self.body.get(name)
        if value == -1 and not isinstance(value, bool):
            self.pass_over(name, "-1 is no limit")
            return None
        return whole(value, name, 1, MOST_SEED)

    def stops(self) -> tuple[str, ...]:
        """Return the texts that an answer ends before, however many."""
        value = self.body.get("stop")
        stops = [] if value is None else [value] if isinstance(value, str) else value
        if (
            not isinstance(stops, list)
            or not all(isinstance(stop, str) for stop in stops)
            or (self.strict and not (len(stops) <= MOST_STRICT_STOPS and all(stops)))
        ):
            most = f", up to {MOST_STRICT_STOPS}" if self.strict else ""
            raise invalid(f"'stop' must be a text, or a list of texts{most}.", "stop")
        if not all(stops):
            self.pass_over("stop", "an empty text ends nothing")
        return tuple(stop for stop in stops if stop)


def refusal(name: str) -> CallError:
    """Return the error of a field whose value asks for what an answer would lack."""
    reasons = {
        "n": "one answer is given to a question: ask again with another seed",
        "logprobs": "an answer comes of many calls, so it has no log-probabilities: leave it out",
        "top_logprobs": "an answer comes of many calls, so it has no log-probabilities: leave it out",
        "tool_choice": "no tools are called here, so none can be required: leave it out or write 'auto'",
        "function_call": "no tools are called here, so none can be required: leave it out or write 'auto'",
        "response_format": "answers are plain text: leave it out, and ask another model for a form",
        "modalities": "answers are text: leave it out",
        "echo": "an answer does not repeat the question: leave it out",
        "suffix": "answers are not put into a text: leave it out",
        "background": "an answer is waited for, or streamed: leave it out",
        "truncation": "write 'auto': what is too long is shortened from its front, and told",
        "include": "there is nothing to include: leave it out",
    }
    return invalid(f"'{name}' cannot be had: {reasons[name]}.", name, "unsupported_parameter")


def _same(value: Any, usual: Any) -> bool:
    # 1 == True, but only one of them is a number of answers.
    return bool(value == usual) and isinstance(value, bool) == isinstance(usual, bool)


def _leaves_open(choice: Any) -> bool:
    """Whether a choice of tools lets the model call none, in OpenAI's form of a list of allowed tools."""
    if not isinstance(choice, dict):
        return False
    allowed_tools = choice.get("allowed_tools") if choice.get("type") == "allowed_tools" else None
    mode = (allowed_tools if isinstance(allowed_tools, dict) else choice).get("mode", choice.get("type"))
    return mode in ("auto", "none")


def printable_name(name: str) -> str:
    """Return a field's name as a reply may repeat it."""
    return name if len(name) <= 64 and name.isidentifier() else "(its name)"


def whole(value: Any, name: str, least: int, most: int) -> int | None:
    """Return a whole number within bounds; None for none. Raises :class:`CallError`."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():  # JavaScript knows no whole numbers
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise invalid(f"'{name}' must be a whole number from {least:,} to {most:,}.", name)
    return value


def number(value: Any, name: str, least: float, most: float) -> float | None:
    """Return a number within bounds; None for none. Raises :class:`CallError`."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise invalid(f"'{name}' must be a number from {least} to {most}.", name)
    return float(value) if math.isfinite(value) else None


def flag(value: Any, name: str) -> bool:
    """Return a truth value, false for none. Raises :class:`CallError`."""
    if value is not None and not isinstance(value, bool):
        raise invalid(f"'{name}' must be true or false.", name, "invalid_type")
    return bool(value)


def model_name(body: Mapping[str, Any]) -> str:
    """Return the name of the model. Raises :class:`CallError` if there is none."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise invalid(
            "name a model, one of those that GET /v1/models lists.", "model", "missing_required_parameter"
        )
    return model


def require_object(body: Any) -> dict[str, Any]:
    """Return a body that is an object. Raises :class:`CallError` for another."""
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object.")
    return body
