"""What a document is once its file has been read: a title, and blocks of text under their headings.

Readers of all formats write through :class:`Writer`, so that headings, tables and odd characters come out the
same from each.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import PurePath

SEPARATOR = " > "
_LONGEST_HEADING = 200  # characters; what is longer is a paragraph that was given a heading's style
# No language has such a word: it is a picture, a key or minified code, and would drown its passage.
_NO_WORD = re.compile(r"[!-~]{1000,}")
# Half of a surrogate pair, controls but tab and line break, soft hyphen, zero-width space, byte order mark.
_UNWANTED = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f\u00ad\u200b\ufeff]")
_LIGATURES = {number: unicodedata.normalize("NFKC", chr(number)) for number in range(0xFB00, 0xFB07)}
# Titles that programs fill in by themselves.
_JUNK_TITLE = re.compile(
    r"untitled\W*\d*|(?:untitled|word|powerpoint) (?:document|presentation)"
    r"|microsoft (?:word|powerpoint) - .*|.*\.(?:docx?|pptx?|xlsx?|pdf|rtf|odt|tex|dvi|indd|qxd|html?|md|txt)"
    r"|\W*",
    re.IGNORECASE,
)
_BREAKS = str.maketrans(dict.fromkeys("\r\x0b\x0c\x85\u2028\u2029", "\n"))


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item, table row or piece of code.

    Attributes:
        text: lines that belong together.
        headings: those above it, the outermost first.
        page: where it begins, counted from 1; 0 where there are no pages.
        whole: not to be cut unless it is longer than a passage, and then between its lines.
    """

    text: str
    headings: tuple[str, ...] = ()
    page: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A document's title and blocks in reading order. ``notes``: what a user should know of the reading."""

    title: str
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()


class Writer:
    """Takes a document down, block by block. ``title``: what it is called if nothing in it is its title."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.notes: list[str] = []
        self._blocks: list[Block] = []
        self._path: list[tuple[int, str]] = []
        self._levels: list[tuple[int, str]] = []
        self._bare = False  # whether nothing stands below the last heading yet
        self._no_words = 0

    def heading(self, level: int, text: str) -> None:
        """Begin a section: it ends the sections of its level and of deeper ones."""
        text = " ".join(clean(text).split())
        if len(text) > _LONGEST_HEADING:
            self.block(text)
        elif text:
            if self._bare and level <= self._path[-1][0]:
                self._keep_bare_heading()
            self._bare = True
            self._path = [(above, name) for above, name in self._path if above < level] + [(level, text)]
            self._levels.append((level, text))

    def block(self, text: str, *, page: int = 0, whole: bool = False) -> None:
        """Add a block; one without a letter or digit is left out."""
        text, count = _NO_WORD.subn(" ", clean(text))
        self._no_words += count
        if not whole:
            text = "\n".join(squeezed for line in text.split("\n") if (squeezed := " ".join(line.split())))
        text = text.rstrip().lstrip("\n")
        if any(map(str.isalnum, text)):
            self._bare = False
            self._blocks.append(Block(text, tuple(name for _, name in self._path), page, whole))

    def table(self, rows: Sequence[Sequence[str]], *, header: bool) -> None:
        """Add a table: a block for each row.

        ``header``: its first row names the columns; then every row names them, so that a passage with the
        hundredth row still tells what its figures are.
        """
        cells = [[" ".join(clean(cell).split()) for cell in row] for row in rows]
        names = cells[0] if header and len(cells) > 1 else []
        if len(names) > 1 and len(set(names)) == 1:
            # One cell over all columns: it says what the table is about.
            self.block(names[0])
            names, cells = [], cells[1:]
        elif names and any(len(row) != len(names) for row in cells[1:] if any(row)):
            # Some rows cannot be named by it, so it would be lost to them.
            self.block(" | ".join(name for name, _ in groupby(names) if name), whole=True)
        for row in cells[1:] if names else cells:
            if len(row) == len(names):
                shown = [
                    f"{name}: {cell}" if name else cell for name, cell in zip(names, row, strict=True) if cell
                ]
            else:
                shown = [cell for cell in row if cell]
            self.block(" | ".join(shown), whole=True)

    def _keep_bare_heading(self) -> None:
        # A heading with nothing below it says all that it says itself: a question, an entry of a list.
        *above, (_, text) = self._path
        if any(map(str.isalnum, text)):
            self._blocks.append(Block(text, tuple(name for _, name in above)))
        self._bare = False

    def document(self) -> Document:
        """Return what was taken down.

        A single heading of the highest level is the document's title if it is the first: a later one has
        nothing to do with what stands before it.
        """
        if self._bare:
            self._keep_bare_heading()
        title, blocks = self.title, self._blocks
        top = min((level for level, _ in self._levels), default=2)
        tops = [name for level, name in self._levels if level == top]
        if top < 2 and len(tops) == 1 and self._levels[0][0] == top:
            (title,) = tops
            blocks = [
                replace(block, headings=block.headings[1:]) if block.headings[:1] == (title,) else block
                for block in blocks
            ]
        if self._no_words:
            self.notes.append(
                f"left out {self._no_words:,} string(s) of over 1,000 characters without a space: encoded "
                "data, not words"
            )
        return Document(title, tuple(blocks), tuple(self.notes))


def clean(text: str) -> str:
    """Return a text in composed characters, with one kind of line break, without what no reader sees."""
    text = text.replace("\r\n", "\n").translate(_BREAKS).translate(_LIGATURES)
    return unicodedata.normalize("NFC", _UNWANTED.sub("", text))


def title_of_file(name: str) -> str:
    """Return a file's name as a title.

    >>> title_of_file("reports/annual_report-2024.pdf")
    'annual report-2024'
    """
    return " ".join(PurePath(name).stem.replace("_", " ").split())


def stated_title(stated: object, otherwise: str) -> str:
    """Return the title that a file's properties state, unless a program has filled it in by itself."""
    title = " ".join(clean(str(stated or "")).split())
    return otherwise if _JUNK_TITLE.fullmatch(title) or len(title) > _LONGEST_HEADING else title
