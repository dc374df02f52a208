"""Errors as callers see them.

The sentences are ours, never a library's: those name paths, addresses and prompts.
"""

from __future__ import annotations

from typing import Any

from corag.core.errors import (
    BackendError,
    BudgetExhaustedError,
    CoragError,
    RequestRefusedError,
    SearchFailedError,
)


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


def unavailable(message: str = "the model or the index behind this service does not reply") -> CallError:
    """Return the error of an engine or index that is gone, perhaps for a while."""
    return CallError(503, f"{message}: try again later.", "engine_unavailable", retry_after=5)


def error_from_exception(error: BaseException) -> CallError:
    """Convert an exception into the error that a caller sees."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, BackendError):
        return unavailable()
    return CallError(500, "something went wrong here; the server's log says what.", "internal_error")


def shutting_down() -> CallError:
    """Return the error of a service that is ending."""
    return CallError(503, "this service is shutting down: try again.", "shutting_down", retry_after=5)


def error_from_row(error: str) -> CallError:
    """Convert a failed row's error, which may name paths and prompts, into the error that a caller sees."""
    kind = error.partition(":")[0]
    if kind == RequestRefusedError.__name__:
        return CallError(
            400, "the question does not fit the model's window: shorten it.", "context_length_exceeded"
        )
    if kind == BudgetExhaustedError.__name__:
        return invalid(
            "the token budget of this question is not enough for an answer: allow more (corag.budget, or the "
            "service's own).",
            "corag.budget",
            "budget_exhausted",
        )
    if kind == SearchFailedError.__name__:
        return CallError(
            503, "a search failed while the question was answered: try again.", "search_failed", retry_after=1
        )
    return CallError(500, "the method failed at this question.", "method_failed")
