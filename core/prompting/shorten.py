"""Making a prompt smaller: which whole segments go first, for a model's window and for a token budget."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from core.prompting.prompt import Item, Message, Prompt, Segment, Shortening

# Allowed for a chat template's own words when a call is weighed against the budget: at first, and for each
# further message; and for what a tokenizer puts around a plain text.
_TEMPLATE_TOKENS, _TEMPLATE_TOKENS_A_MESSAGE, _PLAIN_TOKENS = 48, 6, 2


def shorten(
    prompt: Prompt, excess: Callable[[Prompt], int], count: Callable[[str], int]
) -> tuple[Prompt, tuple[Segment, ...]]:
    """Leave out whole segments by rising ``drop``, no more than needed; return the rest, and what went.

    ``excess``: tokens that a prompt has too many; ``count``: of a text by itself. If those that must stay are
    too long, so is the prompt that is returned.
    """
    order = _droppable(prompt)
    sizes = [count(prompt.messages[m].segments[s].text) for m, s in order]
    gone, over = 0, excess(prompt)
    while over > 0 and gone < len(order):
        # First by the segments' own counts, which are cheap: joined they are off by a token or two, ...
        while over > 0 and gone < len(order):
            over -= sizes[gone]
            gone += 1
        over = excess(_without(prompt, order[:gone]))
    # ... so what went too far is taken back by counting whole prompts.
    while gone and over <= 0 and excess(_without(prompt, order[: gone - 1])) <= 0:
        gone -= 1
    return _without(prompt, order[:gone]), tuple(prompt.messages[m].segments[s] for m, s in order[:gone])


def token_bound(prompt: Prompt, max_tokens: int, count: Callable[[str], int]) -> int:
    """Return the tokens that prompt and completion may come to, the chat template's own among them, about.

    ``count``: tokens of a text by itself.
    """
    template = _TEMPLATE_TOKENS + _TEMPLATE_TOKENS_A_MESSAGE * (len(prompt.messages) - 1)
    return count(prompt.text) + (_PLAIN_TOKENS if prompt.plain else template) + max_tokens


def count_segments(prompt: Prompt, kind: str) -> int:
    """Return how many segments of this kind a prompt has."""
    return sum(segment.kind == kind for message in prompt.messages for segment in message.segments)


def texts_left(prompt: Prompt, kind: Item, shortening: Shortening) -> list[str]:
    """Return the texts of a prompt's segments of one kind that are left after it was shortened."""
    of_kind = [(m, s) for m, s in _droppable(prompt) if prompt.messages[m].segments[s].kind == kind]
    kept = _without(prompt, of_kind[: shortening.count(kind)])
    return [each.text for message in kept.messages for each in message.segments if each.kind == kind]


def _droppable(prompt: Prompt) -> list[tuple[int, int]]:
    """List the (message, segment) of what may be dropped, first to go first."""
    ranked = [
        (segment.drop, m, s)
        for m, message in enumerate(prompt.messages)
        for s, segment in enumerate(message.segments)
        if segment.drop is not None
    ]
    return [(m, s) for _, m, s in sorted(ranked)]


def _without(prompt: Prompt, positions: Collection[tuple[int, int]]) -> Prompt:
    gone = set(positions)
    messages = (
        Message(
            message.role, tuple(segment for s, segment in enumerate(message.segments) if (m, s) not in gone)
        )
        for m, message in enumerate(prompt.messages)
    )
    return replace(prompt, messages=tuple(messages))
