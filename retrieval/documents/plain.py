"""Plain text: bytes to characters, hard line breaks to paragraphs."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise, zip_longest

from corag.core.language.words import line_joint
from corag.data.text import decode
from retrieval.documents.contents import find_contents
from retrieval.documents.document import Document, Writer, clean
from retrieval.documents.left_out import CONTENTS

_WIDEST = 160  # characters; longer lines were not broken to fit a page
FULL_LINE = 0.7
"""Of the usual width: a shorter line was ended by its writer."""

_LONGEST_TITLE = 80  # characters of a first line
_CLOSING = ")]\"'\u201d\u2019\u00bb"  # marks that a heading may end in
_LAST_LETTERS, _FIRST_LETTERS = re.compile(r"[^\W\d_]+$"), re.compile(r"[^\W\d_]+")
_ENDS = ".!?\u2026\u3002\uff01\uff1f\u061f\u0964"  # of sentences
_FIELD = re.compile(r"[^:]{1,40}:\s|.*[|@\t]")  # "From: Ada", a row of a table
_ITEM = re.compile(r"\s*(?:[-*•–·▪◦]|\(?\w{1,2}[.)]|\d+(?:\.\d+)+\.?)\s")  # or a numbered heading


def read_text(data: bytes, title: str) -> Document:
    """Read a text file: paragraphs, lists and lines as they stand, without its table of contents.

    A first line that stands by itself like a heading is its title.
    """
    decoding = decode(data)
    writer = Writer(title)
    writer.notes += [decoding.note] if decoding.note else []
    lines = clean(decoding.text).split("\n")
    contents = find_contents(lines)
    writer.leave_out(CONTENTS, "\n".join(lines[number] for number in sorted(contents)))
    lines = ["" if number in contents else line for number, line in enumerate(lines)]
    if (position := find_heading(lines)) is not None:
        writer.heading(1, lines[position])
        lines = lines[position + 1 :]
    for paragraph in paragraphs(lines, usual_width(lines), Hyphens(lines)):
        writer.block(paragraph)
    return writer.document()


def find_heading(lines: Sequence[str]) -> int | None:
    """Return where a text's heading is: a short first line by itself, with prose after it; None if nowhere.

    No sentence, salutation, field or entry of a list is one: it does not end in a mark, and has more letters
    than digits, as a date has not. Nor is the first of several records or parts: see :func:`_is_prose`.

    >>> find_heading(["Fire safety", "", "Know the exits."]), find_heading(["Dear Ms Orm,", "", "Thanks."])
    (0, None)
    """
    position = next((number for number, line in enumerate(lines) if line.strip()), None)
    if position is None or any(map(str.isalnum, "".join(lines[position + 1 : position + 2]))):
        return None
    line = lines[position].strip()
    letters, digits = sum(map(str.isalpha, line)), sum(map(str.isdigit, line))
    ends_in_mark = unicodedata.category(line[-1]).startswith("P") and line[-1] not in _CLOSING
    if len(line) > _LONGEST_TITLE or letters <= digits or ends_in_mark or _ITEM.match(line):
        return None
    return position if not _FIELD.match(line) and _is_prose(lines[position + 1 :], line.split()[0]) else None


def _is_prose(lines: Sequence[str], word: str) -> bool:
    """Whether a third of the paragraphs end as sentences do, and none of the others begins with a word."""
    prose, others = 0, 0
    for has_words, group in groupby(lines, key=lambda line: any(map(str.isalnum, line))):
        if has_words:
            paragraph = [*group]
            ends = paragraph[-1].rstrip().rstrip(_CLOSING).endswith(tuple(_ENDS))
            if not ends and paragraph[0].split()[0] == word:
                return False
            prose, others = prose + ends, others + (not ends)
    return prose > 0 and 2 * prose >= others


class Hyphens:
    """Tells the hyphens of the printer at the ends of a text's lines from those of words like "well-known".

    The joined word stands elsewhere, or both halves do. Of the others those go in a text with more of the
    printer's than of words', but for names and words of several hyphens.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._words: set[str] = set()  # that no line's end cuts, in small letters
        broken = [pair for pair in pairwise(map(str.strip, lines)) if _breaks_word(*pair)]
        seconds = {following for _, following in broken}
        for line in lines if broken else ():
            line = line.strip()
            for word in _FIRST_LETTERS.finditer(line):
                if line[word.end() :] != "-" and (word.start() or line not in seconds):
                    self._words.add(word[0].casefold())
        known = Counter(self._known(*pair) for pair in broken)
        self._otherwise = known[True] > known[False]

    def are_printers(self, line: str, following: str) -> bool:
        """Whether the hyphen between two lines goes."""
        known = self._known(line, following)
        return self._otherwise if known is None else known

    def _known(self, line: str, following: str) -> bool | None:
        first, second = _LAST_LETTERS.search(line[:-1]), _FIRST_LETTERS.match(following)
        if not (first and second):
            return False
        halves = first[0].casefold(), second[0].casefold()
        if "".join(halves) in self._words:
            return True
        has_more = line[: first.start()].endswith("-") or following[second.end() :].startswith("-")
        is_word = has_more or not second[0][0].islower() or all(half in self._words for half in halves)
        return False if is_word else None


def _breaks_word(line: str, following: str) -> bool:
    return line.endswith("-") and line[-2:-1].isalnum() and following[:1].isalnum()


def usual_width(lines: Sequence[str]) -> int:
    """Return how wide the lines of a text are, but for the longest of them; 0 if there is none."""
    lengths = sorted(len(line) for line in lines if line.strip())
    return lengths[len(lengths) * 9 // 10] if lengths else 0


def paragraphs(lines: Sequence[str], width: int, hyphens: Hyphens) -> Iterator[str]:
    """Join lines that were broken to fit a page of ``width`` characters; blank lines end a paragraph."""
    paragraph: list[str] = []
    for line in map(str.strip, lines):
        # A line of dashes or dots is a ruler, so ends a paragraph too.
        ruler = not any(map(str.isalnum, line))
        if paragraph and (ruler or not _goes_on(paragraph[-1], line, width)):
            yield join_lines(paragraph, hyphens)
            paragraph = []
        if not ruler:
            paragraph.append(line)
    if paragraph:
        yield join_lines(paragraph, hyphens)


def join_lines(lines: Sequence[str], hyphens: Hyphens) -> str:
    """Join the lines of a paragraph, and the halves of words that were broken between them.

    >>> lines = ["Both well-", "known towns have neigh-", "bours; neighbours are known as well."]
    >>> join_lines(lines, Hyphens(lines))
    'Both well-known towns have neighbours; neighbours are known as well.'
    """
    parts = []
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        if _breaks_word(line, following):
            parts.append(line[:-1] if hyphens.are_printers(line, following) else line)
        else:
            parts.append(line + line_joint(line, following))
    return "".join(parts).rstrip()


def _goes_on(line: str, following: str, width: int) -> bool:
    if width > _WIDEST or _ITEM.match(following):
        return False
    if len(line) >= FULL_LINE * width:
        return True
    return following[:1].islower() and not line.endswith((".", "!", "?", ":", ";"))
