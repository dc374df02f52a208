"""What is said to servers that speak OpenAI's protocol, and how their replies are read.

Servers have words beyond the protocol's own: for further settings, for tokens, and llama.cpp's for a token
that is to be generated. Replies differ in where they tell log-probabilities and what they make of reasoning.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from core.errors import RequestRefusedError
from core.protocols import Completion, Sampling
from generation.endpoints import NonsenseError, part, parts

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# llama.cpp's own routes, beside OpenAI's.
NATIVE, TEMPLATE, TOKENIZE = "/completion", "/apply-template", "/tokenize"
# A token that no model would write here. A bias pushes it up: a server that returns log-probabilities from
# before the bias must not call it certain.
UNLIKELY = 7
_WHOLE_VOCABULARY = 10_000_000  # more tokens than any model has
_THOUGHT, _THOUGHT_END = "<think>", "</think>"
_CUT = frozenset({"length", "max_tokens"})  # why a reply ended before it was done
_GIVEN_UP = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class Reply:
    """Samples of one request; token counts as the server tells them, None if it does not."""

    completions: tuple[Completion, ...]
    prompt_tokens: int | None
    generated_tokens: int | None
    cached: int


def extra_settings(top_k: int, repetition_penalty: float) -> dict[str, Any]:
    """Spell out what OpenAI's protocol has no word for: else a server fills in defaults of its own."""
    # The penalty has two names: vLLM's and SGLang's, and llama.cpp's and LM Studio's.
    penalty = {"repetition_penalty": repetition_penalty, "repeat_penalty": repetition_penalty}
    return {"top_k": top_k or -1, "min_p": 0.0, **penalty}


def tokenize_body(model: str, text: str, *, special: bool = False) -> dict[str, Any]:
    """Ask for the token ids of a text, in the words of llama.cpp's server and in those of vLLM's.

    ``special``: with what the tokenizer puts before a text.
    """
    return {
        "model": model, "prompt": text, "add_special_tokens": special,
        "content": text, "add_special": special, "parse_special": True,
    }  # fmt: skip


def forcing_body(prompt: str | Sequence[int], token: int, told: int = 1) -> dict[str, Any]:
    """Ask llama.cpp's server to generate this one token, and for its log-probability before it was forced.

    ``told``: of how many of the likeliest tokens it tells the log-probability as well.
    """
    return {
        "prompt": prompt,
        "n_predict": 1,
        "temperature": 0,
        "logit_bias": [[token, 1e6]],
        "n_probs": told,
        "post_sampling_probs": False,
        "cache_prompt": True,
    }


def distribution_body(prompt: str | Sequence[int]) -> dict[str, Any]:
    """Ask llama.cpp's server for the log-probability of every token that may come next: some megabytes.

    The token that it is forced to generate is one that it tells of.
    """
    return forcing_body(prompt, UNLIKELY, _WHOLE_VOCABULARY)


def filled_template(reply: Any) -> str:
    """Read the text that llama.cpp's server made of a conversation."""
    return part(reply, "prompt", kind=str)


def forced_logprob(reply: Any) -> tuple[int, float, int] | None:
    """Read which token was generated, its log-probability, and how many prompt tokens were computed.

    None for the first bytes of a character: they wait in the server for the token that completes them, and
    nothing is told of them.
    """
    held_back = isinstance(reply, dict) and str(reply.get("content", "")).endswith("\ufffd")
    if held_back and not reply.get("completion_probabilities"):
        return None
    token = part(reply, "completion_probabilities", 0, kind=dict)
    return part(token, "id", kind=int), part(token, "logprob", kind=float), _computed(reply)


def listed_logprob(reply: Any, token: int) -> tuple[float, int]:
    """Read one token's log-probability out of all, and how many prompt tokens were computed."""
    told = parts(reply, "completion_probabilities", 0, "top_logprobs", kind=dict)
    for entry in told:
        if entry.get("id") == token:
            return part(entry, "logprob", kind=float), _computed(reply)
    raise NonsenseError(f"a reply that tells of {len(told)} tokens, but not of token {token}")


def number(reply: Any, *path: str) -> int:
    """Return a number at a place in a reply, 0 if there is none."""
    try:
        return part(reply, *path, kind=int)
    except NonsenseError:
        return 0


def _computed(reply: Any) -> int:
    """Return how many prompt tokens llama.cpp's server computed, rather than found in its cache."""
    return number(reply, "timings", "prompt_n") or number(reply, "tokens_evaluated")


def choice_text(choice: Mapping[str, Any], *, chat: bool) -> str:
    """Read a sample's text. One that spent all its tokens on hidden reasoning has none.

    Raises :class:`NonsenseError`.
    """
    if not chat:
        return part(choice, "text", kind=str)
    message = part(choice, "message", kind=dict)
    content = message.get("content")
    # SGLang has null for an empty text, beside a field for reasoning that is null as well.
    if content is None and (_thought(message) or {"reasoning_content", "reasoning"} & message.keys()):
        return ""
    if isinstance(content, list):  # in parts, as some proxies have it
        return "".join(part(each, "text", kind=str) for each in content)
    return part(message, "content", kind=str)


def after_thought(text: str) -> int:
    r"""Return where a reply begins behind the reasoning that some models write before it; 0 if there is none.

    >>> text = "<think>Rome? no</think>\n\nParis"
    >>> text[after_thought(text):]
    'Paris'
    """
    begun = len(text) - len(text.lstrip())
    if not text.startswith(_THOUGHT, begun):
        return 0
    end = text.find(_THOUGHT_END, begun)
    if end < 0:  # cut off before it came to a reply
        return len(text)
    end += len(_THOUGHT_END)
    return end + len(text[end:]) - len(text[end:].lstrip())


def _thought(message: Mapping[str, Any]) -> str:
    """Return what a server tells of the reasoning before a reply, "" if nothing."""
    told = message.get("reasoning_content") or message.get("reasoning")
    return told if isinstance(told, str) else ""


def began_with_thought(reply: Any) -> bool:
    """Whether a model began with reasoning."""
    message = part(reply, "choices", 0, kind=dict).get("message")
    if not isinstance(message, dict):
        return False
    return bool(_thought(message)) or str(message.get("content")).lstrip().startswith(_THOUGHT)


def text_logprob(reply: Any) -> float | None:
    """Read the first token's log-probability out of a completion; None if it has none."""
    choice = part(reply, "choices", 0, kind=dict)
    choice_text(choice, chat=False)
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict) and "content" in logprobs:  # llama.cpp tells them as in a chat
        return _first_of_content(logprobs)
    if not isinstance(logprobs, dict) or not logprobs.get("token_logprobs"):
        return None
    return part(logprobs, "token_logprobs", 0, kind=float)


def chat_logprob(reply: Any) -> float | None:
    """Read the first token's log-probability out of a chat's reply; None if it has none."""
    choice = part(reply, "choices", 0, kind=dict)
    choice_text(choice, chat=True)
    logprobs = choice.get("logprobs")
    return _first_of_content(logprobs) if isinstance(logprobs, dict) else None


def _first_of_content(logprobs: Mapping[str, Any]) -> float | None:
    return part(logprobs, "content", 0, "logprob", kind=float) if logprobs.get("content") else None


def echoed(reply: Any, length: int) -> bool:
    """Whether a reply tells the log-probabilities of the ``length`` tokens that were sent, too."""
    logprobs = part(reply, "choices", 0, kind=dict).get("logprobs")
    values = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    # Of the first token there is none: nothing stands before it.
    return (
        isinstance(values, list)
        and len(values) > length
        and all(isinstance(value, float | int) for value in values[1:])
    )


def read_reply(reply: Any, *, sampling: Sampling, n: int, chat: bool, prefix: str) -> Reply:
    """Read ``n`` samples. Raises :class:`NonsenseError`."""
    choices = parts(reply, "choices", kind=dict)
    if len(choices) != n:
        raise NonsenseError(f"a reply with {len(choices)} samples instead of {n}")
    usage = reply.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Reply(
        tuple(_completion(choice, sampling, chat=chat, prefix=prefix) for choice in choices),
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        _count(cached) or 0,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _completion(choice: dict[str, Any], sampling: Sampling, *, chat: bool, prefix: str) -> Completion:
    """Read one sample, and take away what it was asked to begin with and where it was asked to end."""
    whole = choice_text(choice, chat=chat)
    begun = after_thought(whole) if chat else 0
    begun += _repeated(whole[begun:], prefix)
    # Servers leave the stop string out. One that forgets must not change what a method reads.
    ends = [whole.find(stop, begun) for stop in sampling.stop]
    end = min((place for place in ends if place >= 0), default=len(whole))
    finish = "length" if _reason(choice) in _CUT and end == len(whole) else "stop"
    if not sampling.logprobs:
        return Completion(whole[begun:end], (), finish)
    pieces, logprobs = _logprobs(choice, empty=not whole)
    starts = pairwise([*accumulate(map(len, spelled(whole, pieces)), initial=0)])
    texts = tuple(whole[max(start, begun) : min(stop, end)] for start, stop in starts)
    return Completion(whole[begun:end], (), finish, logprobs, texts)


def _reason(choice: dict[str, Any]) -> str:
    """Return why a sample ended.

    Raises :class:`NonsenseError` where the server gave it up, :class:`RequestRefusedError` for a filter.
    """
    reason = str(choice.get("finish_reason"))
    if reason in _GIVEN_UP:
        raise NonsenseError(f"a reply that was given up ('{reason}')")
    if reason == "content_filter":
        raise RequestRefusedError("the server's filter took a reply away, or a part of it.")
    return reason


def _repeated(text: str, prefix: str) -> int:
    """Return the length of what a reply repeats of the words that it was asked to begin with."""
    lead = len(text) - len(text.lstrip())
    wanted = prefix.strip()
    end = lead + len(wanted)
    whole_word = not (wanted[-1:].isalnum() and text[end : end + 1].isalnum())
    return end if wanted and whole_word and text[lead:].startswith(wanted) else 0


def _logprobs(choice: dict[str, Any], *, empty: bool) -> tuple[list[str], tuple[float, ...]]:
    """Read the tokens of a sample, as text, with their log-probabilities, in either of the two forms."""
    told = choice.get("logprobs")
    if told is None and empty:
        return [], ()
    told = part(told, kind=dict)
    if "content" not in told:
        pieces = parts(told, "tokens", kind=str)
        return list(pieces), parts(told, "token_logprobs", kind=float, length=len(pieces))
    if told["content"] is None and empty:
        return [], ()
    tokens = parts(told, "content", kind=dict)
    logprobs = tuple(part(token, "logprob", kind=float) for token in tokens)
    if any(token.get("bytes") is None for token in tokens):
        return [part(token, "token", kind=str) for token in tokens], logprobs
    # Bytes that are no whole character yet wait for the token that completes them.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        return [decoder.decode(bytes(parts(token, "bytes", kind=int))) for token in tokens], logprobs
    except ValueError:
        raise NonsenseError("a reply with tokens that are no bytes") from None


def spelled(text: str, pieces: Sequence[str]) -> list[str]:
    r"""Return what each token adds to a text, so that joined they are the text.

    Tokens that the text leaves out (the end of a turn, a stop string) add nothing. A character spelled by
    several tokens, each of which then reads "\ufffd", belongs to the one behind them.

    >>> spelled("yes, sir", [" yes", ",", " sir", "<end>"])
    ['yes', ',', ' sir', '']
    """
    added, at, pending = [], 0, False
    for piece in pieces:
        rest = text[at:]
        if pending and piece and 0 < (gap := rest.find(piece)) <= len("abcd"):
            taken = gap + len(piece)
        elif rest.startswith(piece):
            taken = len(piece)
        elif not at and piece.lstrip() and rest.startswith(piece.lstrip()):  # the text was stripped
            taken = len(piece.lstrip())
        else:
            taken = 0 if "\ufffd" in piece else _alike(rest, piece)
        pending = (pending or "\ufffd" in piece) and not taken
        added.append(rest[:taken])
        at += taken
    if added:
        added[-1] += text[at:]
    return added


def _alike(left: str, right: str) -> int:
    """Return how many characters two texts begin alike."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))
