"""Which passages a text mentions by their titles: one sorted table of hashes over all titles of an index."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePath

import numpy as np
import numpy.typing as npt

from corag.core.errors import IndexMismatchError
from corag.core.types import Passage
from retrieval.store import PassageStore, has_store

TITLES = "passages.titles.npy"
_MOST_WORDS = 16  # of a title that a text can be expected to spell out
_LEAST_LETTERS = 5  # of a title of one word: shorter ones are mostly common words
_MOST_PLACES = 3  # of an index that a title names: "Introduction" is no name
_FACTOR = 0x9E3779B97F4A7C15
_ALL_BITS = 0xFFFFFFFFFFFFFFFF
# Scripts without blanks: each character counts as a word.
_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_BRACKETS = re.compile(r"\s*[(\[][^()\[\]]*[)\]]\s*$")
_PATH = " > "  # between the headings above a passage of a document

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Mention:
    """A title as a text spells it, and the rows of the passages that have it, in order."""

    text: str
    rows: tuple[int, ...]


class TitleTable:
    """The titles of an index as sorted hashes beside the rows of their passages: 16 bytes a passage.

    A title is a sequence of words without regard to case; brackets at its end are dropped ("Titanic (1997
    film)" is mentioned as "Titanic"). Of a document's headings the innermost counts; its first passage has
    the name of its file, too. Hashes of 64 bits: of 10^9 words that are looked up among a million titles,
    less than one is mistaken.
    """

    def __init__(self, table: Numbers) -> None:
        """``table``: shape (2, titles): hashes in ascending order, and the row of each."""
        self._hashes, self._rows = table

    @classmethod
    def build(cls, passages: Iterable[Passage]) -> TitleTable:
        """Collect the titles of passages, in the order of their rows."""
        return cls(_sort(_named_rows(passages)))

    @classmethod
    def open(cls, folder: Path, store: PassageStore) -> TitleTable:
        """Read the table of an index folder; the first time, make it and leave it there, if that can be."""
        file = folder / TITLES
        with suppress(OSError, ValueError):
            return cls(np.load(file, mmap_mode="r"))
        table = _sort(_named_rows(store.rows(0, len(store))))
        beside = file.with_name(f"{TITLES}.{os.getpid()}")
        with suppress(OSError):  # a folder that is read only is read again next time
            with beside.open("wb") as stream:
                np.save(stream, table)
            beside.replace(file)
        return cls(table)

    def find(self, text: str) -> list[Mention]:
        """Return the titles that a text mentions, from left to right; the longest, where they overlap.

        One that is written without any capital is no name, unless the whole text has none.
        """
        words = list(_WORD.finditer(text))
        if not words or not len(self._hashes):
            return []
        longest = self._longest_matches([_hash_word(word[0].casefold()) for word in words])
        mentions, end = [], 0
        for first in sorted(longest):
            if first < end:
                continue
            length, place = longest[first]
            spelling = text[words[first].start() : words[first + length - 1].end()]
            rows = self._rows_of(place)
            if rows and (not _has_case(spelling) or not _has_capital(text) or _has_capital(spelling)):
                mentions.append(Mention(spelling, rows))
                end = first + length
        return mentions

    def _longest_matches(self, words: list[int]) -> dict[int, tuple[int, int]]:
        """Return by the place of its first word how long the longest title is, and where it stands."""
        hashes = np.array(words, np.uint64)
        spans, firsts, lengths = [hashes], [np.arange(len(words))], [np.ones(len(words), np.int64)]
        for length in range(2, min(_MOST_WORDS, len(words)) + 1):
            # As :func:`_hash_title` has it, of all spans at once; unsigned numbers overflow as they shall.
            spans.append(spans[-1][:-1] * np.uint64(_FACTOR) + hashes[length - 1 :])
            firsts.append(np.arange(len(spans[-1])))
            lengths.append(np.full(len(spans[-1]), length))
        keys = np.concatenate(spans)
        places = np.searchsorted(self._hashes, keys)
        known = self._hashes[np.minimum(places, len(self._hashes) - 1)] == keys
        sized = zip(np.concatenate(lengths)[known].tolist(), places[known].tolist(), strict=True)
        return dict(zip(np.concatenate(firsts)[known].tolist(), sized, strict=True))  # longer ones come last

    def _rows_of(self, place: int) -> tuple[int, ...]:
        """Return the rows of the title at a place of the table; none if it stands all over the index."""
        last = int(np.searchsorted(self._hashes, self._hashes[place], "right"))
        rows: list[int] = self._rows[place:last].tolist()
        gaps = sum(after - before > 1 for before, after in pairwise(rows))
        return tuple(rows) if gaps < _MOST_PLACES else ()


class TitledPassages:
    """The passages of an index with the table of their titles."""

    def __init__(self, folder: Path) -> None:
        """Raises :class:`IndexMismatchError` for an index that ``corag index`` did not make."""
        if not has_store(folder):
            raise IndexMismatchError(
                f"retriever.links is 'titles', but '{folder}' keeps no table of passages: it was not made by "
                "`corag index`. Build the index from the passages themselves, or leave out --retriever.links."
            )
        self._store = PassageStore(folder)
        self._titles = TitleTable.open(folder, self._store)

    def find(self, text: str) -> Iterator[list[Passage]]:
        """Yield the passages of each title that a text mentions, in the order of the index."""
        for mention in self._titles.find(text):
            yield [self._store.row(row) for row in mention.rows]

    def close(self) -> None:
        """Let go of the passages. Safe to call twice."""
        self._store.close()


def _named_rows(passages: Iterable[Passage]) -> Iterator[tuple[int, int]]:
    source = ""
    for row, passage in enumerate(passages):
        heading = passage.title.rpartition(_PATH)[2]
        # A document's heading of one word, such as "Results", is a word and no name.
        if key := _hash_title(heading, least_words=2 if passage.source else 1):
            yield key, row
        if passage.source and passage.source != source:
            source = passage.source
            if key := _hash_title(PurePath(source).name):
                yield key, row


def _sort(named: Iterator[tuple[int, int]]) -> Numbers:
    table = np.fromiter(named, np.dtype((np.uint64, 2))).T
    return np.ascontiguousarray(table[:, np.argsort(table[0], kind="stable")])


def without_brackets(title: str) -> str:
    """Return a title as a text spells it.

    >>> without_brackets("Titanic (1997 film)")
    'Titanic'
    """
    return _BRACKETS.sub("", title)


def _hash_title(title: str, least_words: int = 1) -> int:
    """Return the hash of a title, 0 if no text can be taken to mention it."""
    words = _WORD.findall(without_brackets(title).casefold())
    if not least_words <= len(words) <= _MOST_WORDS or (len(words) == 1 and len(words[0]) < _LEAST_LETTERS):
        return 0
    value = 0
    for word in words:
        value = (value * _FACTOR + _hash_word(word)) & _ALL_BITS
    return value


@lru_cache(maxsize=1 << 18)
def _hash_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def _has_case(text: str) -> bool:
    return text.lower() != text.upper()


def _has_capital(text: str) -> bool:
    return text != text.lower()
