"""Cutting a document into passages: within a section, at the ends of sentences, of about equal length."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from corag.core.errors import ConfigError
from corag.core.language.sentences import sentence_spans
from corag.core.language.words import count_words, is_unspaced, word_spans
from corag.core.types import Passage, passage_id
from retrieval.documents.document import SEPARATOR, Block, Document

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
    page: int | str


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


def _pieces(block: Block, most: int) -> Iterator[_Piece]:
    if block.whole and (words := count_words(block.text)) <= most:
        yield _Piece(block.text, words, "\n", block.page)
        return
    for line in block.text.split("\n"):
        if block.whole and (words := count_words(line)) <= most:
            yield _Piece(line, words, "\n", block.page)
            continue
        joint = "\n"
        for part, words, follows_space in _line_parts(line, most):
            # Between two sentences, or words, of a script without spaces stands nothing.
            yield _Piece(part, words, joint or " " * follows_space, block.page)
            joint = ""


def _line_parts(line: str, most: int) -> Iterator[tuple[str, int, bool]]:
    """Yield a line's sentences, those that are too long in parts.

    Each with its number of words, and whether white space stands before it.
    """
    before = 0
    for start, end in sentence_spans(line):
        words = count_words(line[start:end])
        places = (
            [start + position for position in _places(line[start:end], words, most)] if words > most else []
        )
        for first, last in pairwise([start, *places, end]):
            part = line[first:last].rstrip()
            yield part, count_words(part) if places else words, first > before
            before = first + len(part)


def _places(sentence: str, count: int, most: int) -> Sequence[int]:
    """Return where to cut a sentence that is too long: between words, into parts of about equal length.

    Where no spaces are set between words, a space, or a comma, ends a phrase: there, if it is near.
    ``count``: of its words.
    """
    starts = [start for start, _ in word_spans(sentence)]
    if is_unspaced(sentence):
        return list(_phrase_places(sentence, starts, most))
    parts = math.ceil(count / most)
    return [starts[count * part // parts] for part in range(1, parts)]


def _phrase_places(sentence: str, starts: Sequence[int], most: int) -> Iterator[int]:
    first = 0
    while (words := len(starts) - first) > most:
        target = first + words // math.ceil(words / most)
        near = most // _NEAR
        candidates = range(max(first + 1, target - near), min(first + most, target + near) + 1)
        ends = [number for number in candidates if _ends_phrase(sentence[starts[number] - 1])]
        first = min(ends, key=lambda number: abs(number - target), default=target)
        yield starts[first]


def _ends_phrase(character: str) -> bool:
    return character.isspace() or unicodedata.category(character).startswith("P")


def _parts(pieces: Sequence[_Piece], cutting: Cutting) -> Iterator[Sequence[_Piece]]:
    """Divide a section's pieces into as few passages as they fill, none of them a short rest."""
    most = cutting.words - cutting.overlap
    words_left = sum(piece.words for piece in pieces)
    start = 0
    while start < len(pieces):
        target = words_left / max(1, math.ceil(words_left / most))
        stop, size = start, 0
        while stop < len(pieces):
            next_size = size + pieces[stop].words
            # Stop where the size wanted is met more nearly than one piece further on.
            if size and (next_size > most or next_size - target > target - size):
                break
            stop, size = stop + 1, next_size
        stop = _move_to_paragraph(pieces, start, stop, room=most - size, near=most // _NEAR)
        yield pieces[_start_with_overlap(pieces, start, cutting.overlap) : stop]
        words_left -= sum(piece.words for piece in pieces[start:stop])
        start = stop


def _move_to_paragraph(pieces: Sequence[_Piece], start: int, stop: int, room: int, near: int) -> int:
    """Move a passage's end to a paragraph's: no more than ``near`` words away, and ``room`` if it grows."""
    for step, spare in ((1, min(near, room)), (-1, near)):
        position, words = stop, 0
        while start < position < len(pieces) and pieces[position].joint != "\n" and words <= spare:
            words += pieces[position if step > 0 else position - 1].words
            position += step
        if words <= spare and position > start:
            return position
    return stop


def _start_with_overlap(pieces: Sequence[_Piece], start: int, overlap: int) -> int:
    """Return where a passage begins that repeats up to ``overlap`` words before ``start``."""
    while start and pieces[start - 1].words <= overlap:
        start -= 1
        overlap -= pieces[start].words
    return start
