"""What a document is once its file has been read: a title, and blocks of text under their headings.

Readers of all formats write through :class:`Writer`, so that headings, tables and odd characters come out the
same from each.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest
from pathlib import PurePath

from corag.core.language.words import count_words

SEPARATOR = " > "
_MOST_NAMES = 5  # parts of a file that its notes name
_LONGEST_HEADING = 200  # characters; what is longer is a paragraph that was given a heading's style
# No language has such a word: it is a picture, a key or minified code, and would drown its passage.
_NO_WORD = re.compile(r"[!-~]{1000,}")
# Half of a surrogate pair, controls but tab and line break, soft hyphen, zero-width space, byte order mark.
_UNWANTED_CHARACTERS = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f\u00ad\u200b\ufeff]")
_LIGATURES = {letter: unicodedata.normalize("NFKC", letter) for letter in map(chr, range(0xFB00, 0xFB07))}
_LIGATURE = re.compile("[\ufb00-\ufb06]")
# Titles that programs fill in by themselves.
_JUNK_TITLE = re.compile(
    r"untitled\W*\d*|(?:untitled|word|powerpoint) (?:document|presentation)"
    r"|microsoft (?:word|powerpoint) - .*|.*\.(?:docx?|pptx?|xlsx?|pdf|rtf|odt|tex|dvi|indd|qxd|html?|md|txt)"
    r"|\W*",
    re.IGNORECASE,
)
_MACHINE_NAME = re.compile(
    r"\W*(?:(?:description )?automatically generated|AI-generated content .*)\W*", re.I
)
_FEWEST_ALT_WORDS = 3  # of a picture's description in an Office file; shorter ones are names
_PRINTED_SOFT_HYPHEN = re.compile("\u00ad[ \t]*\n[ \t]*(?=\\w)")
_BREAKS = re.compile("[\r\x0b\x0c\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item, table row or piece of code.

    Attributes:
        text: lines that belong together.
        headings: those above it, the outermost first.
        page: where it begins: a page's printed number or label, or a place with its name ("slide 3"); 0 where
            there is none.
        whole: not to be cut unless it is longer than a passage, and then between its lines.
    """

    text: str
    headings: tuple[str, ...] = ()
    page: int | str = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A document's title and blocks in reading order.

    Attributes:
        notes: what a user should know of the reading.
        left_out: what was seen and is in no block, by kind; see :mod:`retrieval.documents.left_out`.
    """

    title: str
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


def join_documents(title: str, documents: Iterable[Document]) -> Document:
    """Return several documents as one, in their order."""
    parts = [*documents]
    counts = sum((Counter(part.left_out) for part in parts), Counter[str]())
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return Document(
        title, tuple(block for part in parts for block in part.blocks), tuple(notes), dict(counts)
    )


class Writer:
    """Takes a document down, block by block.

    ``title``: what it is called if nothing in it is its title. ``stated``: the document calls itself so, in
    its front matter or properties; then a heading that says something else stands below it.
    """

    def __init__(self, title: str, *, is_title_stated: bool = False) -> None:
        self.title = title
        self._is_title_stated = is_title_stated
        self.notes: list[str] = []
        self.left_out: Counter[str] = Counter()
        self._blocks: list[Block] = []
        self._path: list[tuple[int, str]] = []
        self._levels: list[tuple[int, str]] = []
        self._bare = False  # whether nothing stands below the last heading yet
        self._bare_page: int | str = 0
        self._no_words = 0

    def heading(self, level: int, text: str, *, page: int | str = 0) -> None:
        """Begin a section: it ends the sections of its level and of deeper ones.

        ``page``: where the heading stands.
        """
        text = " ".join(clean(text).split())
        if len(text) > _LONGEST_HEADING:
            self.block(text, page=page)
        elif text:
            if self._bare and level <= self._path[-1][0]:
                self._keep_bare_heading()
            self._bare, self._bare_page = True, page
            self._path = [(above, name) for above, name in self._path if above < level] + [(level, text)]
            self._levels.append((level, text))

    def block(self, text: str, *, page: int | str = 0, whole: bool = False) -> None:
        """Add a block; one without a letter or digit is left out."""
        text, count = _NO_WORD.subn(" ", clean(text))
        self._no_words += count
        if not whole:
            text = "\n".join(
                text_of_line for line in text.split("\n") if (text_of_line := " ".join(line.split()))
            )
        text = text.rstrip().lstrip("\n")
        if any(map(str.isalnum, text)):
            self._bare = False
            self._blocks.append(Block(text, tuple(name for _, name in self._path), page, whole))

    def leave_out(self, kind: str, text: str) -> None:
        """Count the words of a text that is not taken."""
        self.pass_over(kind, count_words(clean(text)))

    def pass_over(self, kind: str, count: int = 1) -> None:
        """Count what is not taken, such as pictures; see :mod:`retrieval.documents.left_out`."""
        if count:
            self.left_out[kind] += count

    def table(self, rows: Sequence[Sequence[str]], *, header: int, page: int | str = 0) -> None:
        """Add a table: a block for each row.

        ``header``: how many of its first rows name the columns; then every row names them, so that a passage
        with the hundredth row still tells what its figures are. ``page``: where all of it stands.
        """
        cells = [[" ".join(clean(cell).split()) for cell in row] for row in rows]
        heads, cells = (cells[:header], cells[header:]) if len(cells) > header else ([], cells)
        while heads and len(heads[0]) > 1 and len(set(heads[0])) == 1:
            # One cell over all columns: it says what the table is about.
            self.block(heads.pop(0)[0], page=page)
        names = join_names(heads)
        if names and any(len(row) != len(names) for row in cells if any(row)):
            # Some rows cannot be named by it, so it would be lost to them.
            self.block(" | ".join(name for name, _ in groupby(names) if name), whole=True, page=page)
        for row in cells:
            self.block(name_cells(names if len(row) == len(names) else (), row), whole=True, page=page)

    def count_words(self) -> int:
        """Return how many words have been taken so far, headings included."""
        return sum(count_words(block.text) for block in self._blocks) + sum(
            count_words(text) for _, text in self._levels
        )

    def _keep_bare_heading(self) -> None:
        # A heading with nothing below it says all that it says itself: a question, an entry of a list.
        *above, (_, text) = self._path
        if any(map(str.isalnum, text)):
            self._blocks.append(Block(text, tuple(name for _, name in above), self._bare_page))
        self._bare = False

    def document(self) -> Document:
        """Return what was taken down.

        A single heading of the highest level is the document's title if it is the first: a later one has
        nothing to do with what stands before it. If the document states another, that stands above it.
        """
        if self._bare:
            self._keep_bare_heading()
        title, blocks = self.title, self._blocks
        top = min((level for level, _ in self._levels), default=2)
        tops = [name for level, name in self._levels if level == top]
        if top < 2 and len(tops) == 1 and self._levels[0][0] == top:
            (top_heading,) = tops
            titles = [title, top_heading] if self._is_title_stated else [top_heading]
            # The longer of two that say the same, else both.
            if any(
                _words(top_heading) in _words(other) or _words(other) in _words(top_heading)
                for other in titles[:-1]
            ):
                titles = [max(titles, key=len)]
            if len(titles) == 1:
                (title,) = titles
                blocks = [
                    replace(block, headings=block.headings[1:])
                    if block.headings[:1] == (top_heading,)
                    else block
                    for block in blocks
                ]
        if self._no_words:
            self.notes.append(
                f"left out {self._no_words:,} string(s) of over 1,000 characters without a space: encoded "
                "data, not words"
            )
        return Document(title, tuple(blocks), tuple(self.notes), dict(self.left_out))


def describe_unread(parts: Mapping[str, str]) -> list[str]:
    """Return notes on the parts of a file that cannot be read, such as its pages, each with the reason.

    >>> describe_unread({"page 3": "bad data"})
    ['page 3 cannot be read (bad data)']
    """
    notes = [f"{part} cannot be read ({why})" for part, why in parts.items()]
    more = len(notes) - _MOST_NAMES
    return notes if more <= 0 else [*notes[:_MOST_NAMES], f"{more:,} more cannot be read either"]


def name_cells(names: Sequence[str], row: Sequence[str]) -> str:
    """Return a table's row as a line, each cell behind the name of its column if that has one.

    >>> name_cells(["Grade", "Days"], ["junior", "25"]), name_cells([], ["junior", "", "25"])
    ('Grade: junior | Days: 25', 'junior | 25')
    """
    pairs = zip_longest(names, row, fillvalue="")
    return " | ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)


def join_names(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of columns, whose parts stand one below the other in some rows.

    >>> join_names([["Town", "Cost", "Cost"], ["Town", "2023", "2024"]])
    ['Town', 'Cost 2023', 'Cost 2024']
    """
    return [" ".join(dict.fromkeys(filter(None, parts))) for parts in zip_longest(*rows, fillvalue="")]


def _words(title: str) -> str:
    words = " ".join(re.findall(r"\w+", title.casefold()))
    return f" {words} "


def clean(text: str) -> str:
    """Return a text in composed characters, with one kind of line break, without what no reader sees."""
    text = _BREAKS.sub("\n", text.replace("\r\n", "\n"))
    if text.isascii():
        return _UNWANTED_CHARACTERS.sub("", text)
    text = _LIGATURE.sub(lambda match: _LIGATURES[match[0]], text)
    # A soft hyphen that is printed breaks a word.
    text = _PRINTED_SOFT_HYPHEN.sub("", text)
    return unicodedata.normalize("NFC", _UNWANTED_CHARACTERS.sub("", text))


def make_title(name: str) -> str:
    """Return a file's name as a title.

    >>> make_title("reports/annual_report-2024.pdf")
    'annual report-2024'
    """
    return " ".join(PurePath(name).stem.replace("_", " ").split())


def picture_description(text: str) -> str:
    """Return a description that a writer gave a picture, "" for a name or a program's guess.

    >>> picture_description("Map of the town"), picture_description("Picture 3")
    ('Map of the town', '')
    """
    text = _MACHINE_NAME.sub("", text).strip()
    return text if len(text.split()) >= _FEWEST_ALT_WORDS else ""


def stated_title(property_value: object, otherwise: str) -> str:
    """Return the title that a file's properties state, unless a program has filled it in by itself."""
    title = " ".join(clean(str(property_value or "")).split())
    return otherwise if _JUNK_TITLE.fullmatch(title) or len(title) > _LONGEST_HEADING else title
