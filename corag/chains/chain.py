"""Chains of retrieval as values: hops of sub-query, passages and sub-answer, that only ever grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corag.core.types import Hit, Passage


@dataclass(frozen=True, slots=True)
class SubQuery:
    """A sub-query as it was taken out of a reply.

    ``cut``: the reply ended within it, at its limit of tokens. ``log_probability``: of the reply, natural
    logarithm; None if it was not asked for.
    """

    text: str
    cut: bool = False
    log_probability: float | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop: the same from decoding through the trace to the rows that a model is trained on.

    ``refused``: the passages did not tell. ``passage_ids``: what the search for the sub-query returned, best
    first. ``query_cut``, ``answer_cut``: the reply that it was taken out of ended within it, at its limit of
    tokens.
    """

    sub_query: str
    sub_answer: str
    refused: bool
    passage_ids: tuple[str, ...] = ()
    query_cut: bool = False
    answer_cut: bool = False

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Hop:
        """Return a hop as it stands in a trace."""
        return cls(**{**record, "passage_ids": tuple(record["passage_ids"])})


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain so far.

    ``stopped``: why it ended: "" (it goes on), "length", "check", "settled", "learned",
    "compared" (a rule has the answer), "repeats" (no new sub-query came) or "budget". ``repeats``:
    sub-queries thrown away because they were blank or had been asked. ``draft``: the answer drafted after
    the newest hop, for the stop rules that want one. ``hits``: of each hop's search, best first.
    ``log_probabilities``: of each hop's two replies together, natural logarithm, None where not asked for.
    A chain that is read from a trace has neither, until its passages are loaded.
    """

    hops: tuple[Hop, ...] = ()
    stopped: str = ""
    repeats: int = 0
    draft: str = ""
    hits: tuple[tuple[Hit, ...], ...] = ()
    log_probabilities: tuple[float | None, ...] = ()

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
        """Of all that the model wrote, sub-queries and sub-answers; None if that of a hop is not known."""
        values = [value for value in self.log_probabilities if value is not None]
        return sum(values) if len(values) == len(self) else None

    def extends(self, other: Chain) -> bool:
        """Whether this chain begins with the other one's hops."""
        return self.sub_queries[: len(other)] == other.sub_queries

    def then(self, hop: Hop, hits: tuple[Hit, ...] = (), log_probability: float | None = None) -> Chain:
        """Return the chain with one more hop."""
        return replace(
            self,
            hops=(*self.hops, hop),
            hits=(*self.hits, hits),
            log_probabilities=(*self.log_probabilities, log_probability),
        )

    def continue_as(self, longer: Chain) -> Chain:
        """Return the chain with the next hop of one that extends it."""
        position = len(self)
        return self.then(longer.hops[position], longer.hits[position], longer.log_probabilities[position])


def top_passages(hits: Sequence[Hit], count: int) -> list[Passage]:
    """Return the passages of the best ``count`` hits."""
    return [hit.passage for hit in hits[:count]]
