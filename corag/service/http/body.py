"""The body of a chat completion as a pydantic model, whose schema is what ``/openapi.json`` shows.

What would make a caller believe that something else had happened is refused by the schema: several answers, a
tool that must be called, log-probabilities, a form of the answer. Other fields that have no effect here are
passed over and named in the reply (``corag.ignored``), since clients send them by themselves.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from corag.service.errors import invalid_field

MOST_INTEGER = 2**63 - 1
NO_EFFECT = "it changes no answer here"
NO_TOOLS = "no tools are called here"
ONLY_TEXT = "only texts are read here"
_REASONS = {"tools": NO_TOOLS, "functions": NO_TOOLS}


class _Object(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ChatMessage(_Object):
    """A turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Any] | None = None
    """a text, or a list of parts; only its texts are read"""

    tool_calls: list[Any] | None = None

    def text(self) -> tuple[str, bool]:
        """Return its text, and whether that is all of its content."""
        if isinstance(self.content, str) or self.content is None:
            return self.content or "", True
        parts = [part.get("text") if isinstance(part, dict) else part for part in self.content]
        texts = [part for part in parts if isinstance(part, str)]
        return "\n".join(texts), len(texts) == len(parts)


class StreamOptions(_Object):
    """What a stream ends with."""

    include_usage: bool | None = None
    """whether a last chunk has the usage"""


class ResponseFormat(_Object):
    """The form of an answer."""

    type: Literal["text"]


class Extension(_Object):
    """Fields that OpenAI's protocol lacks."""

    model_config = ConfigDict(extra="forbid")

    budget: int = Field(default=0, ge=1, le=MOST_INTEGER)
    """token budget of the question, prompt plus generated"""

    sources: int | None = Field(default=None, ge=0, le=MOST_INTEGER)
    """maximum number of sources at the end of the answer's text"""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ChatBody(_Object):
    """The body of ``POST /v1/chat/completions``."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1)
    """one of the presets that GET /v1/models lists"""

    messages: list[ChatMessage] = Field(min_length=1)
    """the conversation; its last message is the question"""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=-1, le=MOST_INTEGER)
    """limit of the call that writes the answer; 0 and -1 are none"""

    max_completion_tokens: int | None = Field(default=None, ge=-1, le=MOST_INTEGER)
    """the same, and counts before it"""

    stop: Annotated[list[str], BeforeValidator(_as_list)] | None = None
    """texts that end this call"""

    seed: int | None = Field(default=None, ge=-MOST_INTEGER, le=MOST_INTEGER)
    """of all randomness"""

    corag: Extension | None = None

    n: Literal[1] | None = None
    """one answer is given to a question: ask again with another seed"""

    logprobs: Literal[False] | None = None
    """an answer comes of many calls, so it has no log-probabilities: leave it out"""

    tool_choice: Literal["none", "auto"] | None = None
    """no tools are called here, so none can be required: leave it out"""

    function_call: Literal["none", "auto"] | None = None
    """no tools are called here, so none can be required: leave it out"""

    response_format: ResponseFormat | None = None
    """answers are plain text: leave it out, and ask another model for a form"""

    @property
    def ignored(self) -> dict[str, str]:
        """The fields that have no effect here, each with the reason."""
        extra = self.model_extra or {}
        return {name: _REASONS.get(name, NO_EFFECT) for name, value in extra.items() if value}


def read_body(body: bytes) -> ChatBody:
    """Read a body. Raises :class:`CallError` naming the field that is wrong."""
    try:
        return ChatBody.model_validate_json(body)
    except ValidationError as error:
        raise invalid_field(error, ChatBody.model_fields) from None
