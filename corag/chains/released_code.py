"""The conventions of the authors' inference code, where they differ from ours: preset "released_code".

The table in docs/methods/corag.md has a line for each; tests/chains/test_released_code.py compares all with
what their agent did. The names in parentheses are theirs.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import ClassVar

from corag.chains.conventions import OVERSAMPLE, Conventions, Count
from corag.core.language.text import clean_sub_answer
from corag.core.prompting.prompt import Message, Prompt, Segment
from corag.core.prompting.shorten import longest_beginning
from corag.core.types import Passage


@dataclass(frozen=True)
class ReleasedCode(Conventions):
    """The authors' conventions.

    Attributes:
        max_hop_prompt_tokens: prompts of sub-queries, sub-answers and scores are cut to so many tokens
            (``max_message_length``).
    """

    max_hop_prompt_tokens: int = 4096

    asks_without_passages: ClassVar[bool] = True
    repeats_in_children: ClassVar[bool] = True
    values_all: ClassVar[bool] = False
    hops_best_first: ClassVar[bool] = False
    blank_is_sub_query: ClassVar[bool] = True
    cuts_middle: ClassVar[bool] = True

    def read_sub_query(self, text: str, number: int) -> str:
        r"""Return the whole reply, without quotes or the label that their prompt makes models write.

        >>> ReleasedCode().read_sub_query(' Intermediate query 2: Who wrote Emma?\nAnd when? ', 2)
        'Who wrote Emma?\nAnd when?'
        """
        text = text.strip()
        if text[:1] == text[-1:] == '"':
            text = text[1:-1]
        return re.sub(r"^Intermediate query \d+: ", "", text)

    def reaches_end(self, text: str, number: int) -> bool:
        """Return that it does: the whole reply is the sub-query."""
        return True

    def read_sub_answer(self, text: str, refusal: str) -> tuple[str, bool]:
        """Return the reply as it is, and whether it is a refusal."""
        return text, clean_sub_answer(text, refusal)[1]

    def read_answer(self, text: str) -> str:
        """Return the reply as it is."""
        return text

    def spell(self, sub_query: str) -> str:
        """Return the sub-query: it repeats only if it is the same to the letter."""
        return sub_query

    def count_samples(self, children: int) -> int:
        """Return ``int(1.5 * n)``, where ours rounds up."""
        return math.floor(OVERSAMPLE * children)

    def end_hops(self, segments: list[Segment], piece: str) -> list[Segment]:
        """Strip white space at the end of all hops, as of an empty sub-answer."""
        if not segments:
            return segments
        end = "\n" * (1 + len(piece) - len(piece.rstrip("\n")))
        return [*segments[:-1], replace(segments[-1], text=segments[-1].text.rstrip() + end)]

    def clip_passage(self, passage: Passage, limit: int, count: Count) -> Passage:
        """Cut a passage where title and text together have ``limit`` tokens, even within a word."""
        head = f"{passage.title}\n" if passage.title else ""
        whole = head + passage.text
        if count(whole) <= limit:
            return passage
        beginning = longest_beginning(whole, range(len(whole) + 1), limit, count)
        return replace(passage, title=beginning[: len(passage.title)], text=beginning[len(head) :])

    def fit_hop(self, prompt: Prompt, count: Count) -> Prompt:
        """Cut the middle out of a prompt of more than :attr:`max_hop_prompt_tokens`."""
        return cut_middle(prompt, self.max_hop_prompt_tokens, count)

    def cut_final(self, prompt: Prompt, limit: int, count: Count) -> Prompt:
        """Cut the middle out of a final prompt of more than ``limit`` tokens."""
        return cut_middle(prompt, limit, count)


def cut_middle(prompt: Prompt, limit: int, count: Count) -> Prompt:
    """Cut each message of more than ``limit`` tokens to its first and its last half.

    Only the messages' text is counted. 0 is no limit. A segment that is gone as a whole is no longer there.
    """
    return replace(prompt, messages=tuple(_without_middle(each, limit, count) for each in prompt.messages))


def _without_middle(message: Message, limit: int, count: Count) -> Message:
    text = message.text
    # Their tokenizer puts a token of its own before the text, which counts. Texts of less than two characters
    # a token are not even looked at.
    if not limit or len(text) < 2 * limit or count(text) + 1 <= limit:
        return message
    head = len(longest_beginning(text, range(len(text) + 1), limit // 2 - 1, count))
    tail = max(head, _find_end(text, limit // 2, count))
    segments, position = [], 0
    for segment in message.segments:
        start, position = position, position + len(segment.text)
        rest = text[start : max(start, min(position, head))] + text[max(start, tail) : position]
        if rest:
            segments.append(replace(segment, text=rest))
    return Message(message.role, tuple(segments))


def _find_end(text: str, limit: int, count: Count) -> int:
    """Return where the longest end of a text begins that has at most ``limit`` tokens."""
    return len(text) - bisect_right(range(1, len(text) + 1), limit, key=lambda size: count(text[-size:]))


RELEASED_CODE = ReleasedCode()
