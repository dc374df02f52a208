"""A language model of the user's own: any object or function that continues a text or a conversation.

What it returns is read by its form: texts, dicts, messages of LangChain and OpenAI, completions of
LlamaIndex, the outputs of vLLM and of transformers' pipelines. What it cannot do it is not asked for:
``lacks`` says that before the first question. Replies are cut at stop strings here, whether or not it knows
of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from corag.core.errors import ConfigError, RequestRefusedError
from corag.core.own_calls import OwnCall
from corag.core.own_identity import describe, identify
from corag.core.prompting.prompt import NOTHING_LEFT_OUT, Prompt
from corag.core.protocols import (
    Ability,
    Completion,
    GenerateRequest,
    Generation,
    Generator,
    Sampling,
    Score,
    ScoreRequest,
)
from corag.core.types import TokenUsage
from corag.generation.fitting import EstimatedTokens, fit
from corag.generation.prefixes import repeated_length, request_prefix
from corag.generation.special_names import COMMON_NAMES, spaced_prompt
from corag.generation.thinking import inner_text, is_cut, thought_in

FUNCTIONS = ("invoke", "complete", "generate", "__call__")
SETTINGS = {
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens", "max_new_tokens", "max_output_tokens", "num_predict"),
    "stop": ("stop", "stop_sequences"),
    "seed": ("seed", "rollout_id"),
    "top_p": ("top_p",),
    "logprobs": ("logprobs",),
}
_MESSAGES = ("messages", "chat", "conversation")  # names of a first parameter that is given a conversation
_MAIN_SETTINGS = ("temperature", "max_tokens", "seed")  # that a model is not told these matters
_TEXTS = (
    "content", "message", "text", "choices", "outputs", "generations", "generated_text", "response",
    "answer", "output",
)  # fmt: skip
_EXPECTATION = (
    "a model needs one of generate, invoke, complete or __call__, which takes a prompt, or to be a function "
    "of the prompt: write one, such as `async def llm(prompt, max_tokens): ...`"
)


def adapt_model(model: Any, max_context: int = 0, *, keeps_thoughts: bool = False) -> Generator:
    """Return a generator around an own model; one that has our protocol is used as it is.

    ``max_context``: its window in tokens, to which prompts are shortened; 0 for as long as they come.
    ``keeps_thoughts``: leave them in its replies.

    Raises :class:`ConfigError` for what is no model.
    """
    if all(hasattr(model, name) for name in ("generate", "score", "count_tokens", "fingerprint", "close")):
        return _BorrowedModel(cast("Generator", model))
    if hasattr(model, "forward") and hasattr(model, "generate") and hasattr(model, "state_dict"):
        raise ConfigError(
            f"{describe(model)} takes token ids, not texts: open its folder or name, "
            'open_model("FOLDER", backend="transformers"), or give a function of the prompt around it.'
        )
    return PythonGenerator(model, max_context, keeps_thoughts=keeps_thoughts)


class _BorrowedModel:
    """A generator that belongs to the user, so is not closed with the run."""

    def __init__(self, inner: Generator) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """What an own model returned: ``usage`` is (prompt, generated) in tokens, if it says."""

    text: str
    finish_reason: str = "stop"
    usage: tuple[int, int] | None = None
    tokens: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None


class PythonGenerator:
    """A :class:`corag.core.protocols.Generator` around an object or function of the user's."""

    def __init__(self, model: Any, max_context: int = 0, *, keeps_thoughts: bool = False) -> None:
        self._keeps_thoughts = keeps_thoughts
        self._call = OwnCall(model, FUNCTIONS, SETTINGS, _EXPECTATION)
        self._score = getattr(model, "score", None)
        self._count = getattr(model, "count_tokens", None)
        self._room = max_context
        self._counter = EstimatedTokens()
        self.name = self._call.name
        self.fingerprint = f"python:{identify(model)}" + (f":{max_context}" if max_context else "")
        takes = self._call.takes
        self.lacks = frozenset(
            ability
            for ability, is_offered in {
                Ability.LOGPROBS: "logprobs" in takes,
                Ability.SCORES: callable(self._score),
                Ability.SPECIAL_TOKENS: False,
                Ability.SAMPLING: False,
                Ability.TEMPERATURE: "temperature" in takes,
            }.items()
            if not is_offered
        )
        other_settings = [name for name in _MAIN_SETTINGS if name not in takes]
        settings = [name for name in SETTINGS if name in takes]
        line = f"{self.name} is told {', '.join(settings) or 'the prompt alone'}"
        self.about = (f"{line}; not {', '.join(other_settings)}." if other_settings else f"{line}.",)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text: its own count, or an estimate."""
        return int(self._count(text)) if callable(self._count) else self._counter.count(text)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Continue a prompt: a call for each sample."""
        sampling, prompt, shortening = request.sampling, request.prompt, NOTHING_LEFT_OUT
        if self._room:
            prompt, shortening = fit(prompt, self._room - sampling.max_tokens, self._counter)
        prompt = spaced_prompt(prompt, COMMON_NAMES)  # a server behind it would read names as tokens
        replies = await asyncio.gather(
            *(self._sample(prompt, sampling, number) for number in range(sampling.n))
        )
        completions = tuple(self._completion(reply, prompt, sampling) for reply in replies)
        generation = Generation(completions, self._usage(prompt, replies), shortening)
        return (
            generation if self._keeps_thoughts or prompt.plain else self._thoughts_apart(generation, replies)
        )

    def _thoughts_apart(self, generation: Generation, replies: Sequence[_Reply]) -> Generation:
        """Tell what the thoughts that the replies began with cost from what the rest did."""
        thoughts = tuple(reply.text[: thought_in(reply.text)] for reply in replies)
        if not any(thoughts):
            return generation
        usage = generation.usage
        tokens = min(usage.generated, sum(map(self.count_tokens, thoughts)))
        return replace(
            generation,
            usage=replace(
                usage, generated=usage.generated - tokens, computed_generated=usage.generated - tokens
            ),
            thinking=TokenUsage(generated=tokens, computed_generated=tokens),
            thoughts=tuple(map(inner_text, thoughts)),
            thoughts_cut=sum(is_cut(reply.text) for reply in replies),
        )

    async def score(self, request: ScoreRequest) -> Score:
        """Return the log-likelihood of a text by the object's own ``score(prompt, target)``.

        That returns a number, or one for each token.
        """
        if not callable(self._score) or not isinstance(request.target, str):
            raise RequestRefusedError(
                f"{self.name} cannot score given texts: it has no score(prompt, target)."
            )
        value = self._score(request.prompt.text, request.target)
        value = await value if asyncio.iscoroutine(value) else value
        try:
            logprobs = tuple(map(float, value if isinstance(value, Sequence) else [value]))
        except (TypeError, ValueError):
            raise RequestRefusedError(
                f"{self.name}.score returned {value!r:.80}: return log-probabilities, one or a list."
            ) from None
        prompt = self.count_tokens(request.prompt.text)
        usage = TokenUsage(1, prompt, len(logprobs), prompt, len(logprobs), estimated=prompt)
        return Score(tuple(range(len(logprobs))), logprobs, usage)

    async def close(self) -> None:
        """End the thread in which it was called."""
        self._call.close()

    async def _sample(self, prompt: Prompt, sampling: Sampling, number: int) -> _Reply:
        greedy = sampling.temperature == 0
        settings: dict[str, Any] = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
        if sampling.stop:
            settings["stop"] = list(sampling.stop)
        if sampling.seed is not None and not greedy:
            settings["seed"] = (sampling.seed + number) % 2**31
        if sampling.top_p != 1 and not greedy:
            settings["top_p"] = sampling.top_p
        if sampling.logprobs:
            settings["logprobs"] = True
        value = await self._call(self._argument(prompt), settings)
        if error := _error_in(value):
            raise RequestRefusedError(f"{self.name} returned an error, which is no answer: {error:.300}")
        if (number_of_texts := count_replies(value)) > 1:
            raise RequestRefusedError(
                f"{self.name} returned {number_of_texts} texts for one prompt: return one text; what takes a "
                "list of prompts calls its first parameter 'prompts', and is given a list of one."
            )
        if (reply := read_reply(value)) is None:
            raise RequestRefusedError(
                f"{self.name} returned {value!r:.80}: return a text, or an object that has one "
                "(text, content, choices)."
            )
        return reply

    def _argument(self, prompt: Prompt) -> Any:
        """Return what the model is given: a text, or a conversation where it takes one."""
        several = len(prompt.messages) > 1 and self._call.first == "input"  # LangChain's take both
        if prompt.plain or not (several or self._call.first in _MESSAGES):
            return prompt.text
        messages = [{"role": each.role, "content": each.text} for each in prompt.messages]
        return request_prefix(messages, prompt.prefix)

    def _completion(self, reply: _Reply, prompt: Prompt, sampling: Sampling) -> Completion:
        text, whole = reply.text, reply.text
        if not self._keeps_thoughts and not prompt.plain:
            text = text[thought_in(text) :]
        for before in (prompt.text, prompt.prefix):  # a pipeline returns the prompt, too
            text = text[repeated_length(text, before) :]
        at = min(
            (position for each in sampling.stop if (position := text.find(each)) >= 0), default=len(text)
        )
        finish = "stop" if at < len(text) else reply.finish_reason
        text = text[:at]
        if not sampling.logprobs:
            return Completion(text, (), finish)
        if reply.tokens is None or reply.logprobs is None or "".join(reply.tokens) != whole:
            raise RequestRefusedError(
                f"{self.name} was asked for log-probabilities: return {{'text': ..., 'tokens': [...], "
                "'logprobs': [...]}, of which the tokens joined are the text."
            )
        start = whole.find(text, 0 if self._keeps_thoughts or prompt.plain else thought_in(whole))
        return replace(_within(reply, start, len(text)), finish_reason=finish)

    def _usage(self, prompt: Prompt, replies: Sequence[_Reply]) -> TokenUsage:
        """Return what the calls cost: the prompt counts once, and what nobody counted is estimated."""
        usages = [reply.usage for reply in replies if reply.usage is not None]
        if len(usages) == len(replies):
            prompt_tokens, reply_tokens, estimated_tokens = usages[0][0], sum(each[1] for each in usages), 0
        else:
            prompt_tokens = self.count_tokens(prompt.text)
            reply_tokens = sum(self.count_tokens(reply.text) for reply in replies)
            estimated_tokens = 0 if callable(self._count) else prompt_tokens + reply_tokens
        return TokenUsage(1, prompt_tokens, reply_tokens, prompt_tokens, reply_tokens, estimated_tokens)


def _within(reply: _Reply, start: int, length: int) -> Completion:
    """Return the part of a reply with tokens that begins at a character, as a completion."""
    tokens: list[tuple[str, float]] = []
    position = 0
    for token, logprob in zip(reply.tokens or (), reply.logprobs or (), strict=False):
        piece = token[max(0, start - position) : max(0, start + length - position)]
        if piece:
            tokens.append((piece, logprob))
        position += len(token)
    texts, logprobs = tuple(text for text, _ in tokens), tuple(value for _, value in tokens)
    return Completion("".join(texts), tuple(range(len(texts))), "stop", logprobs, texts)


def read_reply(value: Any) -> _Reply | None:
    """Read what a model returned, None if there is no text in it.

    >>> read_reply({"choices": [{"message": {"content": "Paris"}}]}).text
    'Paris'
    """
    if _error_in(value):
        return None
    if isinstance(value, Generation):
        value = value.completions[0]
    if isinstance(value, str):
        return _Reply(value)
    if isinstance(value, list | tuple):
        parts = [each for each in value if _at(each, "type") == "text"]  # blocks of one message
        if parts:
            texts = [_at(each, "text") for each in parts]
            return _Reply("".join(texts)) if all(isinstance(text, str) for text in texts) else None
        return read_reply(value[0]) if value else None  # the first of several samples
    for name in _TEXTS:
        inner = _at(value, name)
        if inner is None or callable(inner) or (name == "message" and isinstance(inner, str)):
            continue  # a message that is a text is a server's, of what went wrong
        # Of a conversation that a pipeline returns the last turn is the reply.
        last = inner[-1:] if name == "generated_text" and isinstance(inner, list) else inner
        if (reply := read_reply(last)) is not None:
            return _with_details(reply, value)
    return None


def count_replies(value: Any) -> int:
    """Return how many replies there are in a list: 1 if it is one message in blocks, or no list."""
    if not isinstance(value, list | tuple) or any(_at(each, "type") == "text" for each in value):
        return 1
    return sum(read_reply(each) is not None for each in value)


def _error_in(value: Any) -> str:
    """Return what a server's reply says went wrong, "" if it says nothing of the kind."""
    error = _at(value, "error")
    if not (isinstance(error, str | Mapping) and error) and _at(value, "object") != "error":
        return ""
    details = error if isinstance(error, str | Mapping) and error else value
    message = _at(details, "message")
    return message if isinstance(message, str) and message else str(details)


def _with_details(reply: _Reply, value: Any) -> _Reply:
    """Add what the object around a text says of it: why it ended, its tokens and what they cost."""
    details = _at(value, "response_metadata") or value
    reasons = (
        _at(each, name)
        for each in (value, details)
        for name in ("finish_reason", "done_reason", "stop_reason")
    )
    reason = next((each for each in reasons if isinstance(each, str)), reply.finish_reason)
    usages = (_at(value, "usage_metadata"), _at(value, "usage"), _at(_at(value, "raw"), "usage"))
    usage = next(filter(None, map(_read_usage, usages)), reply.usage)
    tokens, logprobs = _at(value, "tokens"), _at(value, "logprobs") or _at(details, "logprobs")
    if isinstance(entries := _at(logprobs, "content"), list):  # as OpenAI has it
        tokens, logprobs = ([_at(each, name) for each in entries] for name in ("token", "logprob"))
    if (
        isinstance(tokens, list | tuple)
        and isinstance(logprobs, list | tuple)
        and len(tokens) == len(logprobs)
    ):
        reply = replace(reply, tokens=tuple(map(str, tokens)), logprobs=tuple(map(float, logprobs)))
    finish = "length" if reason in ("length", "max_tokens") else "stop"
    return replace(reply, finish_reason=finish, usage=usage)


def _read_usage(usage: Any) -> tuple[int, int] | None:
    for names in (("input_tokens", "output_tokens"), ("prompt_tokens", "completion_tokens")):
        counts = tuple(_at(usage, name) for name in names)
        if all(isinstance(count, int) for count in counts):
            return cast("tuple[int, int]", counts)
    return None


def _at(value: Any, name: str) -> Any:
    """Return an item of a mapping, or an attribute of another object; None if it is not there."""
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)
