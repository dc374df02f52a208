"""Cutting a document into passages: within a section, at the ends of sentences, of about equal length."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from core.errors import ConfigError
from core.sentences import split_sentences
from core.types import Passage, passage_id
from retrieval.documents.document import SEPARATOR, Block, Document

# Scripts without spaces: there a character counts as a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")

_NEAR = 6  # a paragraph's end attracts a passage's within this part of its length


@dataclass(frozen=True)
class Cutting:
    """How documents are cut.

    Attributes:
        words: of a passage at most.
        overlap: words at most that a passage repeats of the end of the one before it, in whole sentences.
    """

    words: int = 180
    overlap: int = 0

    def __post_init__(self) -> None:
        if self.words < 1:
            raise ConfigError(f"passage_words must be at least 1, but is {self.words}.")
        if not 0 <= self.overlap < self.words:
            raise ConfigError(
                f"passage_overlap must be at least 0 and less than passage_words ({self.words}), but is "
                f"{self.overlap}."
            )


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is not cut any further. ``joint``: what stands before it if it does not begin the passage."""

    text: str
    words: int
    joint: str
    page: int


def cut(document: Document, source: str, cutting: Cutting) -> Iterator[Passage]:
    """Cut a document into passages, titled with its title and the headings above them.

    A passage ends where a section or a page ends, so that all of it stands on its page, and else after a
    sentence, a table's row or a line of code. Only a sentence that is longer than a passage is cut between
    two words.
    """
    for (headings, _), blocks in groupby(document.blocks, key=lambda block: (block.headings, block.page)):
        title = SEPARATOR.join((document.title, *headings))
        pieces = [piece for block in blocks for piece in _pieces(block, cutting.words - cutting.overlap)]
        for part in _parts(pieces, cutting):
            text = part[0].text + "".join(piece.joint + piece.text for piece in part[1:])
            yield Passage(passage_id(title, text), title, text, source, part[0].page)


def count_words(text: str) -> int:
    """Count words, in a script without spaces its characters.

    >>> count_words("Oslo, Norway"), count_words("東京は日本")
    (2, 5)
    """
    return len(text.split()) if text.isascii() else len(_WORD.findall(text))


def _pieces(block: Block, most: int) -> Iterator[_Piece]:
    words = count_words(block.text)
    if block.whole and words <= most:
        yield _Piece(block.text, words, "\n", block.page)
        return
    for line in block.text.split("\n"):
        if block.whole and (words := count_words(line)) <= most:
            yield _Piece(line, words, "\n", block.page)
            continue
        joint = "\n"
        for sentence in split_sentences(line):
            for part in _words_of(sentence, most):
                yield _Piece(part, count_words(part), joint, block.page)
                joint = " "


def _words_of(sentence: str, most: int) -> Iterator[str]:
    """Cut a sentence that is too long between words, into parts of about equal length."""
    if (count := count_words(sentence)) <= most:
        yield sentence
        return
    starts = [word.start() for word in _WORD.finditer(sentence)]
    parts = math.ceil(count / most)
    bounds = [starts[count * part // parts] for part in range(parts)] + [len(sentence)]
    for start, stop in pairwise(bounds):
        yield sentence[start:stop].rstrip()


def _parts(pieces: Sequence[_Piece], cutting: Cutting) -> Iterator[Sequence[_Piece]]:
    """Divide a section's pieces into as few passages as they fill, none of them a short rest."""
    most = cutting.words - cutting.overlap
    left = sum(piece.words for piece in pieces)
    start = 0
    while start < len(pieces):
        wanted = left / max(1, math.ceil(left / most))
        stop, size = start, 0
        while stop < len(pieces):
            grown = size + pieces[stop].words
            # Stop where the size wanted is met more nearly than one piece further on.
            if size and (grown > most or grown - wanted > wanted - size):
                break
            stop, size = stop + 1, grown
        stop = _settled(pieces, start, stop, room=most - size, near=most // _NEAR)
        yield pieces[_repeated_from(pieces, start, cutting.overlap) : stop]
        left -= sum(piece.words for piece in pieces[start:stop])
        start = stop


def _settled(pieces: Sequence[_Piece], start: int, stop: int, room: int, near: int) -> int:
    """Move a passage's end to a paragraph's: no more than ``near`` words away, and ``room`` if it grows."""
    for step, spare in ((1, min(near, room)), (-1, near)):
        place, words = stop, 0
        while start < place < len(pieces) and pieces[place].joint != "\n" and words <= spare:
            words += pieces[place if step > 0 else place - 1].words
            place += step
        if words <= spare and place > start:
            return place
    return stop


def _repeated_from(pieces: Sequence[_Piece], start: int, overlap: int) -> int:
    """Return where a passage begins that repeats up to ``overlap`` words before ``start``."""
    while start and pieces[start - 1].words <= overlap:
        start -= 1
        overlap -= pieces[start].words
    return start
