"""The wire format: bodies of OpenAI's protocol and vLLM's extensions, and how their replies are read.

vLLM has fields beyond the protocol's own: for further settings, for token ids, for replies that are forced
(with our plug-in). Replies differ in where they have log-probabilities and in what becomes of reasoning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from corag.core.errors import RequestRefusedError
from corag.core.language.text import shared_length
from corag.core.prompting.prompt import Prompt
from corag.core.protocols import Completion, Sampling
from corag.core.web.replies import MalformedReplyError, list_at, value_at
from corag.generation.forced import FORCED_TOKENS
from corag.generation.prefixes import repeated_length
from corag.generation.thinking import inner_text, thought_in

MODELS, CHAT, COMPLETIONS = "/models", "/chat/completions", "/completions"
PLUGIN_TOKENS = (7, 3)
"""What a vLLM server is to generate when it is opened: hardly what a model would write behind token 5."""
_CERTAIN = -0.001  # a log-probability above this is one that a bias has changed
_ABORT_REASONS = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class Reply:
    """One sample; token counts as the server reports them, None if it does not.

    ``thought``: what was written before it, "" for nothing; ``thought_cut``: whether that used up all tokens;
    ``thought_tokens``: its own.
    """

    completion: Completion
    prompt_tokens: int | None
    generated_tokens: int | None
    cached_tokens: int
    thought: str = ""
    thought_cut: bool = False
    thought_tokens: int | None = None


# Bodies


def messages_body(prompt: Prompt) -> list[dict[str, str]]:
    """Return a prompt's messages as the protocol has them."""
    return [{"role": message.role, "content": message.text} for message in prompt.messages]


def sampling_body(
    sampling: Sampling, sample: int, *, chat: bool, extras: bool, token_ids: bool
) -> dict[str, Any]:
    """Return every setting that a server takes, for one sample.

    Args:
        sampling: what was requested.
        sample: number of the sample, added to the seed, as the engines in process do it.
        chat: whether it goes to the chat route, which has other words for log-probabilities.
        extras: whether the server takes settings beyond OpenAI's protocol. vLLM fills those that are not sent
            in from the model's own generation_config.json: other replies than with the engine in process.
        token_ids: whether tokens are identified by their ids, so that no likeliest tokens are needed.
    """
    greedy = sampling.temperature == 0
    settings: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "stop": list(sampling.stop) or None,
        "seed": None if greedy or sampling.seed is None else sampling.seed + sample,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias} or None,
    }
    if sampling.logprobs:
        # The number is how many of the likeliest tokens are listed besides the generated one. vLLM is fine
        # with 0, which spares it a sort of the vocabulary; other servers may read it as "none at all".
        settings |= {"logprobs": True, "top_logprobs": 1} if chat else {"logprobs": 0 if token_ids else 1}
    if extras:
        settings |= {
            "top_k": -1 if greedy else sampling.top_k or -1,
            "min_p": 0.0,
            "repetition_penalty": sampling.repetition_penalty,
            "skip_special_tokens": False if sampling.special_tokens else None,
        }
    return {name: value for name, value in settings.items() if value is not None}


def echo_body(prompt: Sequence[int]) -> dict[str, Any]:
    """Request the log-probabilities of the prompt's own tokens."""
    # One token must be generated: servers refuse or ignore a request for none.
    return {"prompt": list(prompt), "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}


def forced_reply_body(prompt: Sequence[int], target: Sequence[int]) -> dict[str, Any]:
    """Make vLLM's server generate ``target``, and request the log-probabilities from before it was forced."""
    return {
        "prompt": list(prompt),
        "max_tokens": len(target),
        "temperature": 0,
        "logprobs": 0,
        "ignore_eos": True,  # a target may hold or be the end of the turn
        "vllm_xargs": {FORCED_TOKENS: list(target)},
    }


def plugin_body(model: str) -> dict[str, Any]:
    """Make a vLLM server show how it was started, in one request.

    It forces two tokens, and pushes the first of them up by a bias that raw log-probabilities do not show.
    """
    bias = {"logprobs": 5, "logit_bias": {str(PLUGIN_TOKENS[0]): 100.0}}
    return {"model": model, **forced_reply_body([5], PLUGIN_TOKENS), **bias, "return_token_ids": True}


def streamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Request the same reply, in pieces as it is generated."""
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


# Replies


def join_events(events: Sequence[Any], *, chat: bool, whole: bool = True) -> dict[str, Any]:
    """Return the reply of one sample, without log-probabilities, that the events of a stream make together.

    A server that does not stream sends a reply as its only event. ``whole``: one without an end was torn.
    Raises :class:`MalformedReplyError`.
    """
    parts = [part for event in events for part in value_at(event, "choices", kind=list)]
    pieces = parts
    names: dict[str, type] = {"text": str, "token_ids": list}
    if chat:
        pieces = [value_at(part, "delta" if "delta" in part else "message", kind=dict) for part in parts]
        names = dict.fromkeys(("content", "reasoning_content", "reasoning"), str)
    joined: dict[str, Any] = {"content": ""} if chat else {"text": "", "token_ids": []}
    for piece in pieces:
        for name, kind in names.items():
            if piece.get(name):
                joined[name] = joined.get(name, kind()) + value_at(piece, name, kind=kind)
    ends = [part["finish_reason"] for part in parts if part.get("finish_reason")]
    if whole and not ends:
        raise MalformedReplyError("a stream that breaks off")
    choice = ({"message": joined} if chat else joined) | {"finish_reason": ends[-1] if ends else None}
    usage = [event["usage"] for event in events if event.get("usage")]
    return {"choices": [choice], "usage": usage[-1] if usage else None}


def choice_text(choice: Mapping[str, Any], *, chat: bool) -> str:
    """Read a sample's text. One that used up all its tokens on hidden reasoning has none.

    Raises :class:`MalformedReplyError`.
    """
    if not chat:
        return value_at(choice, "text", kind=str)
    message = value_at(choice, "message", kind=dict)
    content = message.get("content")
    if content is None and {"reasoning_content", "reasoning"} & message.keys():
        return ""
    return value_at(message, "content", kind=str)


def _reasoning(message: Mapping[str, Any]) -> str:
    """Return a message's reasoning where the server has it in a field of its own, "" if it has none."""
    text = message.get("reasoning_content") or message.get("reasoning")
    return text if isinstance(text, str) else ""


def read_first_reply(reply: Any) -> tuple[bool, bool]:
    """Read whether a first reply has log-probabilities, and begins with a thought.

    Raises :class:`MalformedReplyError`.
    """
    choice = value_at(reply, "choices", 0, kind=dict)
    chat = "message" in choice
    choice_text(choice, chat=chat)
    return isinstance(choice.get("logprobs"), dict), chat and bool(_thought(choice))


def read_echo(reply: Any, start: int, length: int) -> tuple[float, ...]:
    """Read the log-probabilities of ``length`` tokens of the prompt, from number ``start`` on."""
    values = value_at(reply, "choices", 0, "logprobs", "token_logprobs", kind=list)
    return list_at(values[start : start + length], kind=float, length=length)


def read_plugin_reply(reply: Any) -> tuple[tuple[int, ...] | None, bool]:
    """Read the token ids of the reply to :func:`plugin_body`, None if the server returns none.

    And whether the log-probabilities are the model's own, in which the bias is invisible.
    """
    choice = value_at(reply, "choices", 0, kind=dict)
    ids = None if choice.get("token_ids") is None else list_at(choice, "token_ids", kind=int)
    length = None if ids is None else len(ids)
    list_at(choice, "logprobs", "token_logprobs", kind=float, length=length)
    unlikely = value_at(choice, "logprobs", "token_logprobs", 0, kind=float)
    likeliest = [
        list_at(list(value_at(best, kind=dict).values()), kind=float)
        for best in choice["logprobs"].get("top_logprobs") or []
    ]
    # After the bias the token would be all but certain; and logits, which vLLM reports in other modes, do not
    # add up to one.
    total = sum(math.exp(min(value, 1.0)) for values in likeliest[:1] for value in values)
    return ids, unlikely < _CERTAIN and total < 1.01


def read_reply(
    reply: Any,
    *,
    sampling: Sampling,
    chat: bool,
    prefix: str = "",
    token_ids: bool = False,
) -> Reply:
    """Read a sample.

    ``prefix``: what the model was asked to begin with, "" if it was not; ``token_ids``: whether the server
    returns ids. Raises :class:`MalformedReplyError`.
    """
    choice = value_at(reply, "choices", 0, kind=dict)
    usage = reply.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached_tokens = details.get("cached_tokens") if isinstance(details, dict) else 0
    completion = _completion(choice, sampling, chat=chat, prefix=prefix, token_ids=token_ids)
    thought = _thought(choice) if chat else ""
    reply_details = usage.get("completion_tokens_details")
    return Reply(
        completion,
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        _count(cached_tokens) or 0,
        thought,
        bool(thought) and not completion.text.strip() and completion.finish_reason == "length",
        _count(reply_details.get("reasoning_tokens")) or None if isinstance(reply_details, dict) else None,
    )


def _thought(choice: Mapping[str, Any]) -> str:
    """Return what a model wrote before its reply in a conversation, "" if nothing."""
    whole = choice_text(choice, chat=True)
    apart = _reasoning(value_at(choice, "message", kind=dict)).strip()
    return apart or inner_text(whole[: thought_in(whole)])


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _completion(
    choice: dict[str, Any], sampling: Sampling, *, chat: bool, prefix: str, token_ids: bool
) -> Completion:
    """Read one sample, without what it was asked to begin with and to end at."""
    whole = choice_text(choice, chat=chat)
    start = thought_in(whole) if chat else 0
    if chat and _reasoning(value_at(choice, "message", kind=dict)):
        start = max(start, len(whole) - len(whole.lstrip()))  # blank lines behind a thought that comes apart
    start += repeated_length(whole[start:], prefix)
    # Servers leave the stop string out. One that forgets must not change what a method reads.
    stops = [whole.find(stop, start) for stop in sampling.stop]
    end = min((position for position in stops if position >= 0), default=len(whole))
    finish = "length" if _finish_reason(choice) == "length" and end == len(whole) else "stop"
    if token_ids:
        ids = list_at(choice, "token_ids", kind=int)
        logprobs = (
            list_at(choice, "logprobs", "token_logprobs", kind=float, length=len(ids))
            if sampling.logprobs
            else None
        )
        return Completion(whole[start:end], ids, finish, logprobs)
    if not sampling.logprobs:
        return Completion(whole[start:end], (), finish)
    pieces, logprobs = _logprobs(choice, empty=not whole)
    # Servers that return thoughts apart have their tokens here all the same.
    apart = max(0, "".join(pieces).rfind(whole))
    thoughts = sum(place <= apart for place in accumulate(map(len, pieces))) if apart else 0
    pieces, logprobs = pieces[thoughts:], logprobs[thoughts:]
    spans = [*pairwise([*accumulate(map(len, split_by_tokens(whole, pieces)), initial=0)])]
    first = sum(last <= start for _, last in spans) if start else 0  # the first token of the reply itself
    texts = tuple(whole[max(begin, start) : min(last, end)] for begin, last in spans[first:])
    return Completion(whole[start:end], (), finish, logprobs[first:], texts)


def _finish_reason(choice: dict[str, Any]) -> str:
    """Return why a sample ended.

    Raises :class:`MalformedReplyError` where the server gave it up, :class:`RequestRefusedError` for a
    filter.
    """
    reason = str(choice.get("finish_reason"))
    if reason in _ABORT_REASONS:
        raise MalformedReplyError(f"a reply that was given up ('{reason}')")
    if reason == "content_filter":
        raise RequestRefusedError("the server's filter took a reply away, or a part of it.")
    return reason


def _logprobs(choice: dict[str, Any], *, empty: bool) -> tuple[list[str], tuple[float, ...]]:
    """Read the tokens of a sample, as text, with their log-probabilities, in either of the two forms."""
    logprobs = choice.get("logprobs")
    if logprobs is None and empty:
        return [], ()
    logprobs = value_at(logprobs, kind=dict)
    if "content" not in logprobs:
        pieces = list_at(logprobs, "tokens", kind=str)
        return list(pieces), list_at(logprobs, "token_logprobs", kind=float, length=len(pieces))
    if logprobs["content"] is None and empty:
        return [], ()
    tokens = list_at(logprobs, "content", kind=dict)
    values = tuple(value_at(token, "logprob", kind=float) for token in tokens)
    texts = [value_at(token, "token", kind=str) for token in tokens]
    # OpenAI's own servers spell bytes that are no whole character like this, others like the latter.
    return ["\ufffd" if text.startswith("bytes:") else text for text in texts], values


def split_by_tokens(text: str, pieces: Sequence[str]) -> list[str]:
    r"""Return what each token adds to a text, so that joined they are the text.

    Tokens that the text leaves out (the end of a turn, a stop string) add nothing. A character spelled by
    several tokens, each of which then reads "\ufffd", belongs to the one behind them.

    >>> split_by_tokens("yes, sir", [" yes", ",", " sir", "<end>"])
    ['yes', ',', ' sir', '']
    """
    parts, at, pending = [], 0, False
    for piece in pieces:
        rest = text[at:]
        # What stands before this piece was spelled by the pending tokens. Farther away it is another place.
        if pending and piece and 0 < (gap := rest.find(piece)) <= len("abcd"):
            length = gap + len(piece)
        elif rest.startswith(piece):
            length = len(piece)
        elif not at and piece.lstrip() and rest.startswith(piece.lstrip()):  # the text was stripped
            length = len(piece.lstrip())
        else:
            length = 0 if "\ufffd" in piece else shared_length(rest, piece)
        pending = (pending or "\ufffd" in piece) and not length
        parts.append(rest[:length])
        at += length
    if parts:
        parts[-1] += text[at:]
    return parts
