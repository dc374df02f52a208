"""Making a prompt smaller: which whole segments go first, for a model's window and for a token budget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from corag.core.language.sentences import sentence_spans
from corag.core.prompting.prompt import Item, Message, Prompt, Segment, Shortening

# Allowed for a chat template's own words when a call is weighed against the budget: at first, and for each
# further message; and for what a tokenizer puts around a plain text.
_TEMPLATE_TOKENS, _TEMPLATE_TOKENS_A_MESSAGE, _PLAIN_TOKENS = 48, 6, 2


def count_to_drop(excess: Callable[[int], int], sizes: Sequence[int]) -> int:
    """Return how many parts must go, from the first on, for the rest of a prompt to fit: no more than needed.

    The one rule for everything that is left out whole: segments by their ranks, CoRAG's passages, IRCoT's
    demonstrations.

    Args:
        excess: tokens too many (0 or less: it fits) without so many parts.
        sizes: tokens of each part by itself, in the order in which they go.

    Returns:
        All of them if what stays is too long even so.
    """
    number, over = 0, excess(0)
    while over > 0 and number < len(sizes):
        # First by the parts' own counts, which are cheap: joined they are off by a token or two, ...
        while over > 0 and number < len(sizes):
            over -= sizes[number]
            number += 1
        over = excess(number)
    # ... so what went too far is taken back by counting what is left as a whole.
    while number and over <= 0 and excess(number - 1) <= 0:
        number -= 1
    return number


def shorten(
    prompt: Prompt, excess: Callable[[Prompt], int], count: Callable[[str], int]
) -> tuple[Prompt, tuple[Segment, ...]]:
    """Leave out whole segments by rising ``drop``, no more than needed; return the rest, and what went.

    ``excess``: tokens that a prompt has too many; ``count``: of a text by itself. If those that must stay are
    too long, so is the prompt that is returned.
    """
    order = _droppable(prompt)
    sizes = [count(prompt.messages[m].segments[s].text) for m, s in order]
    number = count_to_drop(lambda number: excess(_without(prompt, order[:number])), sizes)
    return _without(prompt, order[:number]), tuple(prompt.messages[m].segments[s] for m, s in order[:number])


def token_bound(prompt: Prompt, max_tokens: int, count: Callable[[str], int]) -> int:
    """Return the tokens that prompt and completion may come to, the chat template's own among them, about.

    ``count``: tokens of a text by itself.
    """
    template = _TEMPLATE_TOKENS + _TEMPLATE_TOKENS_A_MESSAGE * (len(prompt.messages) - 1)
    return count(prompt.text) + (_PLAIN_TOKENS if prompt.plain else template) + max_tokens


def longest_beginning(text: str, ends: Sequence[int], limit: int, count: Callable[[str], int]) -> str:
    """Return the longest beginning of a text, up to one of ``ends``, that has at most ``limit`` tokens."""
    # Bisection: a tokenizer takes milliseconds, and a longer beginning has hardly ever fewer tokens.
    number = bisect_right(ends, limit, key=lambda end: count(text[:end]))
    return text[: ends[number - 1]] if number else ""


def cut_best_passage(prompt: Prompt, room: int, size: Callable[[Prompt], int]) -> Prompt | None:
    """Return a prompt of at most ``room`` tokens with its best passage alone, cut behind a sentence.

    None if there is no passage, or no sentence of it fits. ``size``: tokens of a whole prompt.
    """
    order = _droppable(prompt)
    passages = [(m, s) for m, s in order if prompt.messages[m].segments[s].kind == "passage"]
    if not passages:
        return None
    m, s = best = passages[-1]
    segment = prompt.messages[m].segments[s]
    text = segment.text.rstrip()
    title_end = text.find("\n", len(text) - len(text.lstrip()))  # a title alone says nothing

    def cut(beginning: str) -> Prompt:
        wording = tuple((a, min(b, len(beginning))) for a, b in segment.wording if a < len(beginning))
        shorter = replace(segment, text=beginning + segment.text[len(text) :], wording=wording)
        segments = list(prompt.messages[m].segments)
        segments[s] = shorter
        messages = list(prompt.messages)
        messages[m] = replace(messages[m], segments=tuple(segments))
        return _without(replace(prompt, messages=tuple(messages)), order[: order.index(best)])

    ends = [end for _, end in sentence_spans(text) if end > title_end]
    beginning = longest_beginning(text, ends, room, lambda beginning: size(cut(beginning)))
    return cut(beginning) if beginning else None


def texts_left(prompt: Prompt, kind: Item, shortening: Shortening) -> list[str]:
    """Return the texts of a prompt's segments of one kind that are left after it was shortened."""
    of_kind = [(m, s) for m, s in _droppable(prompt) if prompt.messages[m].segments[s].kind == kind]
    rest = _without(prompt, of_kind[: shortening.count(kind)])
    return [each.text for message in rest.messages for each in message.segments if each.kind == kind]


def text_left(prompt: Prompt, shortening: Shortening, count: Callable[[str], int]) -> str:
    """Return the text of a prompt as it was left after it was shortened. ``count``: of a text's tokens."""
    if not shortening:
        return prompt.text
    rest = _without(prompt, _droppable(prompt)[: sum(number for _, number in shortening.dropped)])
    if not shortening.cut_tokens:
        return rest.text
    # Then the longest message lost its beginning, about so many tokens of it.
    texts = [message.text for message in rest.messages]
    longest = max(range(len(texts)), key=lambda index: len(texts[index]))
    text = texts[longest]
    ends = [index for index, character in enumerate(text) if character.isspace()]
    texts[longest] = text[len(longest_beginning(text, ends, shortening.cut_tokens, count)) :]
    return "\n\n".join(texts)


def _droppable(prompt: Prompt) -> list[tuple[int, int]]:
    """List the (message, segment) of what may be dropped, first to go first."""
    candidates = [
        (segment.drop, m, s)
        for m, message in enumerate(prompt.messages)
        for s, segment in enumerate(message.segments)
        if segment.drop is not None
    ]
    return [(m, s) for _, m, s in sorted(candidates)]


def _without(prompt: Prompt, positions: Collection[tuple[int, int]]) -> Prompt:
    dropped_positions = set(positions)
    messages = (
        Message(
            message.role,
            tuple(segment for s, segment in enumerate(message.segments) if (m, s) not in dropped_positions),
        )
        for m, message in enumerate(prompt.messages)
    )
    return replace(prompt, messages=tuple(messages))
