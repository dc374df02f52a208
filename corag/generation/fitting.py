"""Prompts that are too long lose what may go, by rule, with any tokenizer."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Protocol

from corag.core.errors import RequestRefusedError
from corag.core.prompting.prompt import NOTHING_LEFT_OUT, Message, Prompt, Segment, Shortening
from corag.core.prompting.shorten import shorten, token_bound

BYTES_PER_TOKEN = 4


def _end_of(message: Message, text: str) -> Message:
    """Return a turn of which only the end is left, ``text``, with what of its wording is in there."""
    offset = len(message.text) - len(text)
    spans = ((max(start - offset, 0), end - offset) for start, end in message.wording if end > offset)
    # Some tokenizers write a text anew when they decode it: then it is not known where the wording is.
    wording = tuple(spans) if message.text.endswith(text) else ()
    return Message(message.role, (Segment(text, wording=wording),))


class TokenCounter(Protocol):
    """Counts tokens: a tokenizer, or an estimate."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        ...

    def size(self, prompt: Prompt) -> int:
        """Return the tokens of a whole prompt."""
        ...

    def without_first(self, text: str, tokens: int) -> str:
        """Return a text without its first tokens."""
        ...


class EstimatedTokens:
    """Estimates tokens where there is no tokenizer: one for four bytes of UTF-8.

    That is about right for English. Letters beyond ASCII have several bytes, and more tokens too.
    """

    def count(self, text: str) -> int:
        """Return an estimate of the number of tokens of a text."""
        return math.ceil(len(text.encode(errors="replace")) / BYTES_PER_TOKEN)

    def size(self, prompt: Prompt) -> int:
        """Return an estimate of the tokens of a whole prompt, with what a chat template may add."""
        return token_bound(prompt, 0, self.count)

    def without_first(self, text: str, tokens: int) -> str:
        """Return a text without roughly its first tokens."""
        return text.encode(errors="replace")[tokens * BYTES_PER_TOKEN :].decode(errors="ignore")


def fit(prompt: Prompt, room: int, counter: TokenCounter) -> tuple[Prompt, Shortening]:
    """Return a prompt of at most ``room`` tokens, and what had to be left out for that.

    As :meth:`corag.generation.rendering.Renderer.encode_within` says, and raises.
    """
    if counter.size(prompt) <= room:
        return prompt, NOTHING_LEFT_OUT
    if room < 1:
        raise RequestRefusedError(
            "no room is left for a prompt: what is to be generated or scored fills the window. Ask for "
            "fewer tokens, or choose a larger 'model.max_context'."
        )
    shorter, dropped_segments = shorten(prompt, lambda smaller: counter.size(smaller) - room, counter.count)
    shorter, cut_tokens = _cut_front(shorter, room, counter)
    if not counter.size(shorter):
        raise RequestRefusedError(
            f"nothing of the prompt is left in a window with room for {room} prompt tokens."
        )
    return shorter, Shortening(
        tuple(sorted(Counter(segment.kind for segment in dropped_segments).items())), cut_tokens
    )


def _cut_front(prompt: Prompt, room: int, counter: TokenCounter) -> tuple[Prompt, int]:
    """Take tokens from the front of the longest message until the prompt has ``room`` at most.

    Return the prompt and how many went.
    """
    cut_tokens = 0
    while (excess := counter.size(prompt) - room) > 0:
        lengths = [counter.count(message.text) for message in prompt.messages]
        longest = max(range(len(lengths)), key=lambda i: lengths[i])
        if not lengths[longest]:
            raise RequestRefusedError(
                f"a window with room for {room} prompt tokens is too small for this model's chat "
                "template and the reply's beginning: choose a larger 'model.max_context' or ask for fewer "
                "tokens."
            )
        count = min(excess, lengths[longest])
        messages = list(prompt.messages)
        text = counter.without_first(messages[longest].text, count)
        messages[longest] = _end_of(messages[longest], text)
        prompt = dataclasses.replace(prompt, messages=tuple(messages))
        cut_tokens += count
    return prompt, cut_tokens
