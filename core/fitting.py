"""Making a prompt smaller: which whole segments go first, for a model's window and for a question's token budget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from core.prompt import Message, Prompt
from core.tools import Tools

Position = tuple[int, int]


def droppable(prompt: Prompt) -> list[Position]:
    """List the (message, segment) of what may be dropped, first to go first."""
    ranked = [
        (segment.drop, m, s)
        for m, message in enumerate(prompt.messages)
        for s, segment in enumerate(message.segments)
        if segment.drop is not None
    ]
    return [(m, s) for _, m, s in sorted(ranked)]


def without(prompt: Prompt, positions: Collection[Position]) -> Prompt:
    """Return the prompt without the segments at these places."""
    gone = set(positions)
    messages = (
        Message(message.role, tuple(seg for s, seg in enumerate(message.segments) if (m, s) not in gone))
        for m, message in enumerate(prompt.messages)
    )
    return replace(prompt, messages=tuple(messages))


def affordable(prompt: Prompt, max_tokens: int, tools: Tools) -> Prompt:
    """Leave out whole segments by rising ``drop`` until the question's budget allows the call, or nothing more may go.

    Without a budget the prompt stays whole. A prompt that is still too dear is refused when it is asked, as any other.
    """
    left = tools.left
    if left is None:
        return prompt
    order = droppable(prompt)
    sizes = [tools.count_tokens(prompt.messages[m].segments[s].text) for m, s in order]
    gone, kept = 0, prompt
    while gone < len(order) and (excess := tools.cost(kept, max_tokens) - left) > 0:
        while gone < len(order) and excess > 0:  # by the segments' own counts, which joining changes a little
            excess -= sizes[gone]
            gone += 1
        kept = without(prompt, order[:gone])
    return kept


def reserve(prompt: Prompt, max_tokens: int, tools: Tools) -> int:
    """Return the tokens to hold back so that a call stays affordable; 0 without a budget, where counting would be idle work."""
    return 0 if tools.left is None else tools.cost(prompt, max_tokens)


def count_segments(prompt: Prompt, kind: str) -> int:
    """Return how many segments of this kind a prompt has."""
    return sum(segment.kind == kind for message in prompt.messages for segment in message.segments)
