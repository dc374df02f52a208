"""Errors as callers see them.

The sentences are ours, never a library's: those name paths, addresses and prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException

from corag.core.errors import (
    BackendError,
    BudgetExhaustedError,
    CoragError,
    RequestRefusedError,
    SearchFailedError,
)

_NO_ADDRESS = (
    "there is nothing at this address: questions go to /v1/chat/completions, /v1/models lists the presets, "
    "agents use /mcp."
)
DEFECT = "internal_error"
_UNION_MEMBERS = ("str", "list[any]")  # parts of an error's place that are no fields


class CallError(CoragError):
    """A call that gets no answer: the status and code that say why, in OpenAI's words.

    Args:
        status: the HTTP status.
        message: a sentence for the caller.
        code: such as "model_not_found", for programs.
        param: the field of the body that is wrong, "" if none is.
        retry_after: seconds after which another try makes sense, 0 if none does.
    """

    def __init__(
        self, status: int, message: str, code: str = "", *, param: str = "", retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """OpenAI's type of error."""
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    @property
    def body(self) -> dict[str, Any]:
        """The error as OpenAI's clients read it."""
        error = {
            "message": str(self),
            "type": self.kind,
            "param": self.param or None,
            "code": self.code or None,
        }
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        """When to try again; and that trying again is no use, which OpenAI's clients would do unasked."""
        if self.retry_after:
            return {"retry-after": str(self.retry_after)}
        return {"x-should-retry": "false"}


def invalid(message: str, param: str = "", code: str = "invalid_value") -> CallError:
    """Return the error of a body that cannot be worked with."""
    return CallError(400, message, code, param=param)


def invalid_field(error: ValidationError, fields: Mapping[str, FieldInfo]) -> CallError:
    """Return the first of what is wrong as a sentence, with what the schema says of the field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return invalid("the body is not JSON.", code="invalid_json")
    parts = [part for part in first["loc"] if part not in _UNION_MEMBERS]
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
    if not name:
        return invalid("the body must be a JSON object.")
    field = fields.get(str(parts[0]))
    about = f" ({field.description})" if field is not None and field.description else ""
    problem = first["msg"][:1].lower() + first["msg"][1:]
    return invalid(f"the field '{name}' cannot be used: {problem}{about}.", name)


def error_from_exception(error: BaseException) -> CallError:
    """Convert an exception into the error that a caller sees."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, HTTPException):  # of the router
        allowed = (error.headers or {}).get("Allow")
        if allowed:
            return CallError(405, f"this address takes {allowed} alone.", "method_not_allowed")
        return CallError(error.status_code, _NO_ADDRESS, "not_found")
    names = (each.__name__ for each in type(error).__mro__ if each.__name__ in _FAILURES)
    return failure(next(names, DEFECT))


def failure(name: str) -> CallError:
    """Return the error that a caller sees of one of ours, by the name of its class.

    What a failed row says beside it may name paths and prompts.
    """
    status, message, code = _FAILURES.get(name, _METHOD_FAILED)
    return CallError(status, message, code, retry_after=5 if status == 503 else 0)


_METHOD_FAILED = 500, "the method failed at this question.", "method_failed"
_FAILURES: Mapping[str, tuple[int, str, str]] = {
    BackendError.__name__: (
        503,
        "the model or the index behind this service does not reply: try again later.",
        "engine_unavailable",
    ),
    SearchFailedError.__name__: (503, "a search failed: try again.", "search_failed"),
    RequestRefusedError.__name__: (
        400,
        "the question does not fit the model's window: shorten it.",
        "context_length_exceeded",
    ),
    BudgetExhaustedError.__name__: (
        400,
        "the token budget of this question is not enough for an answer: allow more (corag.budget, or the "
        "service's own).",
        "budget_exhausted",
    ),
    # What is under way when the service's time to end is over.
    asyncio.CancelledError.__name__: (503, "this service is shutting down: try again.", "shutting_down"),
    DEFECT: (500, "something went wrong here; the server's log says what.", DEFECT),
}
