"""Which passages a text mentions by their titles: one sorted table of hashes over all titles of an index."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from os.path import samestat
from pathlib import Path, PurePath

import numpy as np
import numpy.typing as npt

from corag.core.errors import DataError
from corag.core.system.files import atomic_replace
from corag.core.types import Passage
from retrieval.index.store import TEXTS, PassageStore, hash_text

TITLES = "passages.titles-3.npy"  # the number counts up when titles are read otherwise
_MOST_WORDS = 16  # of a title that a text can be expected to spell out
_LEAST_LETTERS = 5  # of a title of one word: shorter ones are mostly common words
_MOST_PLACES = 3  # of an index that a title names: "Introduction" is no name
MOST_PER_TITLE = 2  # passages of an article that a link brings
_FACTOR = 0x9E3779B97F4A7C15
_ALL_BITS = 0xFFFFFFFFFFFFFFFF
# Scripts without blanks: each character counts as a word.
_UNSPACED_LETTERS = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED_LETTERS}]|[^\W_{_UNSPACED_LETTERS}]+")
_hash_word = lru_cache(maxsize=1 << 18)(hash_text)
_BRACKETS = re.compile(r"\s*[(\[][^()\[\]]*[)\]]\s*$")
_PATH = " > "  # between the headings above a passage of a document

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Mention:
    """A title as a text spells it, its hash, and the rows of the passages that have it, in order.

    ``start``: the character of the text at which it begins.
    """

    text: str
    key: int
    rows: tuple[int, ...]
    start: int = 0


class TitleTable:
    """The titles of an index as sorted hashes beside the rows of their passages: 16 bytes a passage.

    A title is a sequence of words without regard to case; brackets at its end are dropped ("Titanic (1997
    film)" is mentioned as "Titanic"). Of a document's headings the innermost counts; its first passage has
    the document's title and the name of its file, too. Hashes of 64 bits: of 10^9 words that are looked up
    among a million titles, less than one is mistaken.
    """

    def __init__(self, table: Numbers) -> None:
        """``table``: shape (2, titles): hashes in ascending order, and the row of each."""
        self._hashes, self._rows = np.asarray(table)  # plain arrays are read faster than maps

    @classmethod
    def build(cls, passages: Iterable[Passage]) -> TitleTable:
        """Collect the titles of passages, in the order of their rows."""
        return cls(_sort(_named_rows(passages)))

    @classmethod
    def open(cls, folder: Path, store: PassageStore) -> TitleTable:
        """Read the table of an index folder; the first time, make it and leave it there, if that can be."""
        file, texts = folder / TITLES, folder / TEXTS
        with suppress(OSError, ValueError):  # not there, or torn
            return cls(np.load(file, mmap_mode="r"))
        opened = texts.stat()
        table = cls.build(store.rows(0, len(store)))
        # An update of the index may have taken the folder's place meanwhile, and a folder may be read only.
        with suppress(DataError, OSError):
            if samestat(opened, texts.stat()):
                table.save(file)
        return table

    def save(self, file: Path) -> None:
        """Write the table, whole or not at all. Raises :class:`DataError` if that fails."""
        with atomic_replace(file) as temporary, temporary.open("wb") as stream:
            np.save(stream, np.stack([self._hashes, self._rows]))

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
            length, position = longest[first]
            start = words[first].start()
            spelling = text[start : words[first + length - 1].end()]
            rows = self._rows_of(position)
            if rows and (not _has_case(spelling) or not _has_capital(text) or _has_capital(spelling)):
                mentions.append(Mention(spelling, int(self._hashes[position]), rows, start))
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
        is_title = self._hashes[np.minimum(places, len(self._hashes) - 1)] == keys
        lengths_and_places = zip(
            np.concatenate(lengths)[is_title].tolist(), places[is_title].tolist(), strict=True
        )
        # Of the titles that begin at one word, longer ones come last.
        return dict(zip(np.concatenate(firsts)[is_title].tolist(), lengths_and_places, strict=True))

    def _rows_of(self, position: int) -> tuple[int, ...]:
        """Return the rows of the title at a place of the table; none if it stands all over the index."""
        last = int(np.searchsorted(self._hashes, self._hashes[position], "right"))
        rows = self._rows[position:last]
        gaps = np.count_nonzero(np.diff(rows) > 1)
        return tuple(rows.tolist()) if gaps < _MOST_PLACES else ()


class HitTitles:
    """The passages that a search ranks, by their titles; those of a document by its file and title, too."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        """``passages``: best first."""
        self._groups: dict[int, list[Passage]] = {}
        for passage in passages:
            for key in _keys(passage, opens_document=True):
                self._groups.setdefault(key, []).append(passage)

    def get(self, key: int) -> Sequence[Passage]:
        """Return those of a title, by its hash."""
        return self._groups.get(key, ())

    def find(self, text: str) -> Iterator[tuple[int, Sequence[Passage]]]:
        """Yield the hash of each title that a text mentions, and its passages, from left to right."""
        for mention in self._table.find(text):
            passages = self._groups[mention.key]
            sources = {passage.source for passage in passages}
            if sources == {""}:
                # Whether they are one article's or headings of several does not show, but for "Introduction".
                is_name = len(passages) <= _MOST_PLACES or len(_WORD.findall(mention.text)) > 1
            else:
                is_name = len(sources) <= _MOST_PLACES
            if is_name:
                yield mention.key, passages

    @cached_property
    def _table(self) -> TitleTable:
        return TitleTable(np.array([sorted(self._groups)] * 2, np.uint64))


class StoredTitles:
    """The titles of all passages of an index that ``corag index`` made."""

    def __init__(self, folder: Path) -> None:
        self._store = PassageStore(folder)
        self._titles = TitleTable.open(folder, self._store)

    def find(self, text: str, hits: HitTitles) -> Iterator[tuple[int, Sequence[Passage]]]:
        """Yield the hash of each title that a text mentions, and its best passages, from left to right.

        These are the hits, in their order; where they are too few, the first of the index follow.
        """
        for mention in self._titles.find(text):
            passages = hits.get(mention.key)
            if len(passages) < MOST_PER_TITLE:
                passages = [*passages, *map(self._store.row, mention.rows[:MOST_PER_TITLE])]
            yield mention.key, passages

    def close(self) -> None:
        """Let go of the passages. Safe to call twice."""
        self._store.close()


def _named_rows(passages: Iterable[Passage]) -> Iterator[tuple[int, int]]:
    source = ""
    for row, passage in enumerate(passages):
        for key in _keys(passage, opens_document=passage.source != source):
            yield key, row
        source = passage.source


def _keys(passage: Passage, *, opens_document: bool) -> set[int]:
    """Return the hashes by which texts can mention a passage."""
    headings = passage.title.split(_PATH)
    if not passage.source:
        return {_hash_title(headings[-1])} - {0}
    # A heading of one word, such as "Results", is a word and no name.
    keys = {_hash_title(headings[-1], least_words=2)}
    if opens_document:
        file = PurePath(passage.source)
        keys |= {_hash_title(headings[0]), _hash_title(file.name), _hash_title(file.stem, least_words=2)}
    return keys - {0}


def _sort(hashes_and_rows: Iterator[tuple[int, int]]) -> Numbers:
    table = np.fromiter(hashes_and_rows, np.dtype((np.uint64, 2))).T
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


def _has_case(text: str) -> bool:
    return text.lower() != text.upper()


def _has_capital(text: str) -> bool:
    return text != text.lower()
