"""Small conventions of decoding: how replies are read, what is a repeat, how too long text is cut.

Ours are here. Those of the authors' inference code, where they differ, stand together in
:mod:`corag.chains.released_code`, so that they can be read beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from corag.core.language.text import clean_sub_answer, extract_answer, first_line, normalize_answer
from corag.core.language.words import is_unspaced, word_spans
from corag.core.prompting.prompt import Prompt, Segment
from corag.core.prompting.shorten import longest_beginning
from corag.core.types import Passage

# What models write before a sub-query although the prompt does not ask for it.
_LABEL = re.compile(r"^(next |intermediate |follow-?up |sub-?)?(query|question)\s*\d*\s*:\s*", re.IGNORECASE)

OVERSAMPLE = 1.5  # released code: sub-queries sampled per child wanted, since some will be the same

Count = Callable[[str], int]
"""Returns the number of tokens of a text."""


@dataclass(frozen=True)
class Conventions:
    """Our conventions.

    Attributes:
        asks_without_passages: a sub-answer is asked for where the search found nothing; else that is a
            refusal, which costs no call.
        repeats_in_children: children of a tree's state may repeat the sub-queries of their own chain.
        values_all: states of a tree are valued also where the beam has room for all of them.
        hops_best_first: a sub-answer's passages stand best first, which the prefix cache likes, since similar
            sub-queries share their best passages.
        blank_is_sub_query: a blank sub-query is one like any other.
        cuts_middle: a final prompt over its limit loses its middle, not whole passages.
    """

    asks_without_passages: ClassVar[bool] = False
    repeats_in_children: ClassVar[bool] = False
    values_all: ClassVar[bool] = True
    hops_best_first: ClassVar[bool] = True
    blank_is_sub_query: ClassVar[bool] = False
    cuts_middle: ClassVar[bool] = False

    def read_sub_query(self, text: str, number: int) -> str:
        """Return the sub-query in a reply. ``number``: of its hop."""
        return clean_sub_query(text, number)

    def reaches_end(self, text: str, number: int) -> bool:
        """Return whether the sub-query in a reply goes on to the reply's end."""
        return reaches_end(text, number)

    def read_sub_answer(self, text: str, refusal: str) -> tuple[str, bool]:
        """Return the sub-answer in a reply, in one line, and whether it is a refusal: then its sentence."""
        return clean_sub_answer(text, refusal)

    def read_answer(self, text: str) -> str:
        """Return what a reply states as the final answer."""
        return extract_answer(text)

    def spell(self, sub_query: str) -> str:
        """Return what two sub-queries have in common if they are the same."""
        return normalize_answer(sub_query)

    def fresh(self, sub_queries: Iterable[str], earlier: Sequence[str]) -> list[str]:
        """Return the sub-queries that are not blank and repeat neither ``earlier`` nor each other, in order.

        This is the one rule for repeats, of every strategy (paper, section 3.3: identical sub-queries are
        discarded). Ours: two are the same if they are equal in lower case, without punctuation and articles.
        """
        spellings = set(map(self.spell, earlier))
        new = []
        for text in sub_queries:
            if (text or self.blank_is_sub_query) and (spelling := self.spell(text)) not in spellings:
                spellings.add(spelling)
                new.append(text)
        return new

    def count_samples(self, children: int) -> int:
        """Return how many sub-queries are sampled for so many children of a state."""
        return math.ceil(OVERSAMPLE * children)

    def end_hops(self, segments: list[Segment], piece: str) -> list[Segment]:
        """Return the segments of a chain's hops as they stand in a prompt. ``piece``: how one is written."""
        return segments

    def clip_passage(self, passage: Passage, limit: int, count: Count) -> Passage:
        """Cut a passage's text to ``limit`` tokens, at a word."""
        return replace(passage, text=clip_text(passage.text, limit, count))

    def fit_hop(self, prompt: Prompt, count: Count) -> Prompt:
        """Return the prompt of a sub-query, sub-answer or score as it is asked: ours has the whole window."""
        return prompt

    def cut_final(self, prompt: Prompt, limit: int, count: Count) -> Prompt:
        """Cut a final prompt to ``limit`` tokens where :attr:`cuts_middle` says so."""
        return prompt


def clean_sub_query(text: str, number: int = 0) -> str:
    r"""Take the sub-query out of a reply: its first line with text, without label and quotes around it.

    ``number``: of the hop; a line may begin with it, for so the prompt writes the hops before.

    >>> clean_sub_query('\n Intermediate query 2: "Who wrote Emma?" ')
    'Who wrote Emma?'
    >>> clean_sub_query("2. Where is Oslo?", 2), clean_sub_query("1. FC Koln was founded when?", 2)
    ('Where is Oslo?', '1. FC Koln was founded when?')
    """

    def clean(line: str) -> str:
        line = _strip_quotes(_LABEL.sub("", _strip_quotes(line.strip())))
        return _strip_quotes(re.sub(rf"^{number}[.)](?!\d)", "", line).strip())  # no number, as in "2.0"

    return first_line(map(clean, text.splitlines()))


def reaches_end(text: str, number: int = 0) -> bool:
    r"""Return whether the sub-query in a reply goes on to its end: more text would have belonged to it.

    >>> reaches_end("1. Who wrote", 1), reaches_end("Who wrote it?\nIt was"), reaches_end("Who wrote it?\n")
    (True, False, False)
    """
    return clean_sub_query(f"{text}...", number) != clean_sub_query(text, number)


def _strip_quotes(text: str) -> str:
    around = len(text) >= 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1].strip() if around else text


def clip_text(text: str, limit: int, count: Count) -> str:
    """Return the longest beginning of whole words, or else characters, that has at most ``limit`` tokens."""
    if is_unspaced(text):
        ends = [end for _, end in word_spans(text)]
    else:
        ends = [position for position, character in enumerate(text) if character.isspace()] + [len(text)]
    # A first word that is too long by itself is cut within.
    return longest_beginning(text, ends, limit, count) or longest_beginning(
        text, range(len(text) + 1), limit, count
    )


OURS = Conventions()
