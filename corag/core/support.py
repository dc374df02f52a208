"""Which of the passages that were read carry an answer: the order in which its sources are cited.

A prompt has passages in an order of its own: CoRAG's final one has the best last, next to the question.
Whoever shows five sources of twenty shows those that the answer stands in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from corag.core.language.text import is_other_script, normalize_as_mlqa, normalize_as_squad
from corag.core.types import Passage

_LONG_ANSWER = 4  # words from which on no passage need have an answer as it is written
_ENOUGH = 0.5  # of a long answer's words, weighted, that a passage must have to carry it


class Statement(NamedTuple):
    """A question or sub-query with its answer."""

    query: str
    answer: str


def order_by_support(
    passages: Mapping[str, str], statements: Sequence[Statement], ranks: Mapping[str, int]
) -> tuple[str, ...]:
    """Return passages, those first that carry the statements.

    Of each statement, in their order, first the passage that carries it best: one that has the answer, and of
    the words of query and answer the most, each weighted by how few of the passages have it. Then the others
    that carry one, then the rest, both best rank first. Equal ones stay in the order given.

    Args:
        passages: title and text, by id.
        statements: the most important one first. An answer of up to three words must stand in a passage as
            it is; "yes" and "no" stand in too many by chance, so they are carried by none.
        ranks: each passage's best rank in a search, the best one 0; one that no search returned is last.
    """
    other = any(is_other_script(statement.answer) for statement in statements)
    normalize = normalize_as_mlqa if other else normalize_as_squad
    texts = {name: f" {normalize(text)} " for name, text in passages.items()}
    words = {name: frozenset(text.split()) for name, text in texts.items()}
    frequencies = Counter(word for each in words.values() for word in each)

    def share(terms: frozenset[str], name: str) -> float:
        """Return the share of words that a passage has, by weight (inverse document frequency)."""
        weights = {word: math.log1p(len(passages) / (1 + frequencies[word])) for word in terms}
        # Exact sums: those of a set's order would differ in a last digit from process to process.
        return math.fsum(weights[word] for word in terms & words[name]) / (math.fsum(weights.values()) or 1.0)

    first: dict[str, None] = {}
    further: set[str] = set()
    for statement in statements:
        answer = normalize(statement.answer)
        if answer in ("", "yes", "no"):
            continue
        terms = frozenset(answer.split())
        carrying = [name for name, text in texts.items() if f" {answer} " in text]
        if not carrying and len(answer.split()) >= _LONG_ANSWER:
            carrying = [name for name in texts if share(terms, name) >= _ENOUGH]
        terms |= frozenset(normalize(statement.query).split())
        if carrying:
            first[max(carrying, key=lambda name: (share(terms, name), -ranks.get(name, len(ranks))))] = None
            further.update(carrying)
    rest = sorted(passages, key=lambda name: (name not in further, ranks.get(name, len(ranks))))
    return tuple(dict.fromkeys((*first, *rest)))


def drop_same_location(passages: Iterable[Passage]) -> list[Passage]:
    """Return passages without those of a file and page that one before them has; of records by title.

    >>> passages = Passage("1", "A", "", "a.md"), Passage("2", "B", "", "a.md")
    >>> [each.id for each in drop_same_location(passages)]
    ['1']
    """
    by_location: dict[tuple[str, str | int], Passage] = {}
    for passage in passages:
        location = (passage.source, passage.page) if passage.source else ("", passage.title or passage.id)
        by_location.setdefault(location, passage)
    return list(by_location.values())
