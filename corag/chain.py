"""Chains of retrieval as values: hops of sub-query, passages and sub-answer, that only ever grow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from core.text import normalize_answer
from core.types import Hit, Passage

# What models write before a sub-query although the prompt does not ask for it.
_LABEL = re.compile(r"^(next |intermediate |follow-?up |sub-?)?(query|question)\s*\d*\s*:\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SubQuery:
    """A sub-query as it was taken out of a reply.

    ``cut``: the reply ended within it, at its limit of tokens. ``log_probability``: of the reply, natural
    logarithm; None if nobody wanted to know.
    """

    text: str
    cut: bool = False
    log_probability: float | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop.

    ``refused``: the passages did not tell. ``hits``: what the search for the sub-query found, best first.
    ``query_cut``, ``answer_cut``: the reply that it was taken out of ended within it, at its limit of tokens.
    ``log_probability``: of the two replies together; None if nobody wanted to know.
    """

    sub_query: str
    sub_answer: str
    refused: bool
    hits: tuple[Hit, ...] = ()
    query_cut: bool = False
    answer_cut: bool = False
    log_probability: float | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain so far.

    ``stopped``: why it ended: "" (it goes on), "length", "check", "settled", "learned", "verifier", "repeats"
    (no new sub-query came) or "budget". ``repeats``: sub-queries thrown away because they were blank or had
    been asked. ``draft``: the answer drafted after the newest hop, for the stop rules that want one.
    """

    hops: tuple[Hop, ...] = ()
    stopped: str = ""
    repeats: int = 0
    draft: str = ""

    def __len__(self) -> int:
        return len(self.hops)

    @property
    def sub_queries(self) -> tuple[str, ...]:
        """The sub-queries in order: they tell a question's chains apart, for all else follows from them."""
        return tuple(hop.sub_query for hop in self.hops)

    @property
    def refusals(self) -> int:
        """Hops whose passages did not tell."""
        return sum(hop.refused for hop in self.hops)

    @property
    def log_probability(self) -> float | None:
        """Of all that the model wrote, sub-queries and sub-answers; None if a hop does not tell."""
        values = [hop.log_probability for hop in self.hops]
        return None if None in values else sum(value for value in values if value is not None)

    def extends(self, other: Chain) -> bool:
        """Whether this chain begins with the other one's hops."""
        return self.sub_queries[: len(other)] == other.sub_queries

    def then(self, hop: Hop) -> Chain:
        """Return the chain with one more hop."""
        return replace(self, hops=(*self.hops, hop))


def clean_sub_query(text: str, number: int = 0) -> str:
    r"""Take the sub-query out of a reply: its first line with text, without label and quotes around it.

    ``number``: of the hop; a line may begin with it, for so the prompt writes the hops before.

    >>> clean_sub_query('\n Intermediate query 2: "Who wrote Emma?" ')
    'Who wrote Emma?'
    >>> clean_sub_query("2. Where is Oslo?", 2), clean_sub_query("1. FC Koln was founded when?", 2)
    ('Where is Oslo?', '1. FC Koln was founded when?')
    """
    for line in text.splitlines():
        line = _unquoted(_LABEL.sub("", _unquoted(line.strip())))
        line = _unquoted(line.removeprefix(f"{number}.").removeprefix(f"{number})").strip())
        if line:
            return line
    return ""


def written_sub_query(text: str) -> str:
    r"""Take a sub-query as the released code does: the whole reply, without quotes or that code's label.

    >>> written_sub_query(' Intermediate query 2: Who wrote Emma?\nAnd when? ')
    'Who wrote Emma?\nAnd when?'
    """
    text = text.strip()
    if text[:1] == text[-1:] == '"':
        text = text[1:-1]
    return re.sub(r"^Intermediate query \d+: ", "", text)


def reaches_end(text: str, number: int = 0) -> bool:
    r"""Whether the sub-query in a reply goes on to the reply's end: more text would have belonged to it.

    >>> reaches_end("1. Who wrote", 1), reaches_end("Who wrote it?\nIt was"), reaches_end("Who wrote it?\n")
    (True, False, False)
    """
    return clean_sub_query(f"{text}...", number) != clean_sub_query(text, number)


def _unquoted(text: str) -> str:
    around = len(text) >= 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1].strip() if around else text


def fresh(sub_queries: Iterable[str], asked: Sequence[str], *, exact: bool, blank: bool = False) -> list[str]:
    """Return the sub-queries that are not blank and repeat neither ``asked`` nor each other, in order.

    This is the one rule for repeats, of every strategy (paper, section 3.3: identical sub-queries are
    discarded). Unless ``exact``, two are the same if they are equal in lower case, without punctuation and
    articles. With ``blank``, one that is blank is a sub-query like any other.
    """

    def spelling(text: str) -> str:
        return text if exact else normalize_answer(text)

    seen = {spelling(text) for text in asked}
    new = []
    for text in sub_queries:
        if (text or blank) and spelling(text) not in seen:
            seen.add(spelling(text))
            new.append(text)
    return new


def top_passages(hits: Sequence[Hit], count: int) -> list[Passage]:
    """Return the passages of the best ``count`` hits."""
    return [hit.passage for hit in hits[:count]]
