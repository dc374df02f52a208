"""What ReAct has found: how its searches and lookups show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from core.sentences import sentence_end
from core.types import Hit, Passage

Excerpt: TypeAlias = dict[str, str]
"""Some of a passage, as a prompt's "passage" takes it: title, text and its place among all passages found,
from 1.
"""


def sentences(text: str) -> list[str]:
    r"""Split a text into sentences; line breaks end them too.

    >>> sentences("J. R. Smith left. He came to St. Ives.\nThe end")
    ['J. R. Smith left.', 'He came to St. Ives.', 'The end']
    """
    found = []
    while end := sentence_end(text):
        found.append(text[:end].strip())
        text = text[end:]
    return found


class Library:
    """Every passage that the searches of a question have found, in order, with a finger on the sentence shown
    last.
    """

    def __init__(self) -> None:
        self._passages: dict[str, Passage] = {}
        self._term = ""
        self._shown = 0

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the passages."""
        return tuple(self._passages)

    def add(self, hits: Sequence[Hit], shown_sentences: int) -> list[Excerpt]:
        """Take in what a search found and return how it begins.

        Lookups begin anew (released code: a new page).

        ``shown_sentences``: of each passage; 0 for all.
        """
        self._passages.update((hit.passage.id, hit.passage) for hit in hits)
        self._term = ""
        places = {name: place for place, name in enumerate(self._passages, 1)}
        return [
            _excerpt(
                places[hit.passage.id], hit.passage, sentences(hit.passage.text)[: shown_sentences or None]
            )
            for hit in hits
        ]

    def look_up(self, term: str, limit: int) -> tuple[str, list[Excerpt]]:
        """Return the next ``limit`` sentences that hold the term, in any case, and what is said before
        them.
        """
        wanted = term.strip().casefold()
        if wanted != self._term:
            self._term, self._shown = wanted, 0
        found = [
            _excerpt(place, passage, [sentence])
            for place, passage in enumerate(self._passages.values(), 1)
            for sentence in sentences(passage.text)
            if wanted and wanted in sentence.casefold()
        ]
        if not found:
            return f"No sentence with '{term}' in what was found so far.", []
        first, shown = self._shown + 1, found[self._shown : self._shown + limit]
        self._shown += len(shown)
        if not shown:
            return "No more results.", []
        if len(shown) == 1:
            return f"(Result {first} / {len(found)}) ", shown
        return f"(Results {first} to {self._shown} / {len(found)})\n", shown


def _excerpt(place: int, passage: Passage, part: Sequence[str]) -> Excerpt:
    return {"place": str(place), "title": passage.title, "text": " ".join(part)}
