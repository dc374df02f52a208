"""The passages that a question has gathered so far, by IRCoT's rules."""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import fuzz

from corag.core.language.words import count_words, is_unspaced
from corag.core.types import Hit, Passage

NEAR_DUPLICATE = 90.0  # percent of title and of text, by rapidfuzz: as in IRCoT's released code


class PassagePool:
    """An ordered set of passages with a cap.

    IRCoT's released code has a ``budget`` of 15 and ``max_words`` 600. A hit is skipped when it has more than
    ``max_words`` words (those between spaces, or in scripts without spaces those of
    :mod:`corag.core.language.words`), or repeats a kept passage: its title and its text have each been seen,
    or, of a corpus of records, both are at least ``near_duplicate`` percent similar to those of one kept
    passage. A skipped hit has used its place among the k of its search. Passages are never re-ranked.
    Passages beyond the budget are refused, as by the paper's code.
    """

    def __init__(
        self,
        budget: int,
        *,
        max_words: int = 600,
        near_duplicate: float = NEAR_DUPLICATE,
    ) -> None:
        """``budget``: passages kept at most.

        ``near_duplicate``: similarity in percent, over 100 switches the fuzzy test off.
        """
        self._budget = budget
        self._max_words = max_words
        self._near_duplicate = near_duplicate
        self.passages: list[Passage] = []
        self.seen_ids: list[str] = []

    def add(self, hits: Iterable[Hit]) -> int:
        """Take in search results in rank order and return how many new passages were kept."""
        new_count = 0
        for passage in (hit.passage for hit in hits):
            if passage.id not in self.seen_ids:
                self.seen_ids.append(passage.id)
            if _count_words(passage.text) > self._max_words or self._repeats(passage):
                continue
            if len(self.passages) < self._budget:
                self.passages.append(passage)
                new_count += 1
        return new_count

    def _repeats(self, passage: Passage) -> bool:
        # The released code's loose test: title and text may have been seen on two different passages.
        titles = {each.title for each in self.passages}
        texts = {each.text for each in self.passages}
        if passage.title in titles and passage.text in texts:
            return True
        # Rows of one table, and clauses of one contract, are alike and not the same.
        return not passage.source and any(
            fuzz.ratio(passage.title, each.title) >= self._near_duplicate
            and fuzz.ratio(passage.text, each.text) >= self._near_duplicate
            for each in self.passages
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the kept passages, in order of collection."""
        return tuple(passage.id for passage in self.passages)


def _count_words(text: str) -> int:
    # By single spaces, as the released code counts them, where there are any.
    return count_words(text) if is_unspaced(text) else len(text.split(" "))
