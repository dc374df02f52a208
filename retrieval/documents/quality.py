"""Signs that a text came out of its file glued together, torn apart or with the wrong letters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import regex

from corag.core.language.words import UNSPACED_LETTERS

_ASCII_WORD = re.compile(r"[A-Za-z]+")
# With the vowel signs of Indic scripts, the points of Hebrew and Arabic, and the joiners within words.
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}\u200c\u200d]*")
_LONGEST_WORD = 22  # letters; German and Finnish have few longer ones
# Of scripts that put no blank between words, runs of letters are sentences.
_UNSPACED_LETTERS = re.compile(f"[{UNSPACED_LETTERS}]+")
# No letter, a letter of one's own font, or what a reader of PDFs writes for a glyph that it cannot name.
_NO_LETTER = re.compile("\ufffd|[\ue000-\uf8ff]|\\(cid:[0-9]+\\)")

_FEWEST_LETTERS = 250  # of shorter texts a share says nothing
_GLUED_SHARE = 0.05  # of the letters
_SINGLE = 0.35  # of the words; texts full of formulas have up to a quarter
_UNREADABLE = 0.01  # of the characters


def describe_quality(texts: Iterable[str]) -> list[str]:
    """Return what in a document's text looks as if it was badly read; nothing if all is well.

    >>> describe_quality(["Thistextisoneverylongword andthisisanotheroneofthem"] * 40)
    ['its words may be glued together: 100% of its letters stand in words of over 22 letters']
    """
    lengths: Counter[int] = Counter()
    characters = no_letters = 0
    for text in texts:
        characters += len(text)
        if "(cid:" in text or not text.isascii():
            no_letters += sum(map(len, _NO_LETTER.findall(text)))
        if text.isascii():
            words_of_text = _ASCII_WORD.findall(text)
        else:
            words_of_text = _WORD.findall(_UNSPACED_LETTERS.sub(" ", text))
        lengths.update(map(len, words_of_text))
    words, single = lengths.total(), lengths[1]
    letters = sum(length * count for length, count in lengths.items())
    glued_letters = sum(length * count for length, count in lengths.items() if length > _LONGEST_WORD)
    notes = []
    if letters + no_letters >= _FEWEST_LETTERS:
        if letters and glued_letters > _GLUED_SHARE * letters:
            notes.append(
                f"its words may be glued together: {glued_letters / letters:.0%} of its letters stand in "
                f"words of over {_LONGEST_WORD} letters"
            )
        if single > _SINGLE * words:
            notes.append(f"its words may be torn apart: {single / words:.0%} of them are single letters")
    if no_letters > max(2, _UNREADABLE * characters):
        notes.append(
            f"its text may be garbled: {no_letters / characters:.1%} of its characters are no letters that "
            "can be read"
        )
    return notes
