"""From a page's tree to blocks of text, in reading order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lxml import etree

from corag.core.language.words import count_words, squeeze_spaces
from retrieval.documents.document import Writer
from retrieval.documents.formulas import mathml_text
from retrieval.documents.left_out import ELSEWHERE, FORMS, PICTURES
from retrieval.documents.omissions import Omissions, measure
from retrieval.documents.superscripts import InlineText

_HEADING = re.compile(r"h[1-6]")
# All others are inline, those that HTML does not know too.
_BLOCKS = frozenset(
    "address article aside blockquote body caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li "
    "listing main menu nav ol optgroup option p plaintext pre search section summary table tbody td tfoot th "
    "thead tr ul xmp".split()
)
_MOST_COLUMNS = 100  # columns that merged cells may fill, so that a broken page does not fill the memory
_WAYS_BACK = re.compile(r"[\s¶\uf0c1#§↩↑^🔗\ufe0e\ufe0f]+")  # links to where they stand, or to a note's mark
_PERMALINK = re.compile(r"\s*[¶\uf0c1]$|\s+#$")
_NOTE_NAME = re.compile(
    r"\b(?:foot-?notes?(?:-?ref|-?reference|-?link)?|endnote(?:-?ref)?|note-?ref|fn-?ref|fnref|doc-noteref|"
    r"reference|citation|cite_ref)\b",
    re.IGNORECASE,
)
_NOTE_TARGET = re.compile(r"#(?:_?f(?:oot)?n(?:ote)?|_?edn|cite[_-]|ref|note|bib|en\b)", re.IGNORECASE)
_MARK = re.compile(r"[\[(]?(?:\d+|[a-z]|[ivx]+|[*∗†‡§]+)[\])]?")
_NOTE_LENGTH = 6  # characters; [12], iii, *
_FEWEST_ALT_WORDS = 3  # shorter names of pictures are logos and icons
_FORMULA = re.compile(r"[=\\^_]")


def write_tree(root: Any, writer: Writer, omissions: Omissions, *, within: Any = None) -> None:
    """Write the text below ``root``; ``within``: only what is in this part, the rest is counted."""
    walk = _TreeWalk(writer, omissions)
    if within is None:
        walk.through(root)
        return
    walk.through(within)
    words = linked_words = 0
    for element in _beside(root, within):
        if kind := omissions.reason(element, element.tag):
            omissions.leave_out(element, kind)
            continue
        extent = measure(element)
        words, linked_words = words + extent.words, linked_words + extent.linked_words
    if words:
        omissions.counts[ELSEWHERE] += words
        omissions.prose[ELSEWHERE] += words - linked_words


def _beside(root: Any, part: Any) -> list[Any]:
    """Return the elements that with ``part`` make up all of ``root``."""
    path = [part, *part.iterancestors()]
    within = {id(element) for element in path}
    return [
        child
        for above in path[1:]
        for child in above
        if id(child) not in within and isinstance(child.tag, str)
    ]


class _TreeWalk:
    """Goes through a tree in reading order: text of inline elements gathers until a block begins or ends."""

    def __init__(self, writer: Writer, omissions: Omissions) -> None:
        self._writer = writer
        self._omissions = omissions
        self._inline = InlineText()
        self._mark = ""  # of the list item that has begun: a dash or its number
        self._numbers: list[int | None] = []  # of the next item in each list that is open; None for a dash

    def through(self, root: Any) -> None:
        # Events instead of recursion: pages out of a generator nest deeper than Python does.
        walk = etree.iterwalk(root, events=("start", "end"))
        skipped_element = None
        for event, element in walk:
            tag = element.tag
            if event == "start":
                if self._begin(element, tag):
                    walk.skip_subtree()
                    skipped_element = element
                else:
                    self._text(element.text)
            else:
                if element is skipped_element:
                    skipped_element = None
                elif tag in ("ul", "ol") and self._numbers:
                    self._numbers.pop()
                if tag in _BLOCKS:
                    self._flush()
                if element is not root:
                    if stands_apart(element):
                        self._inline.add(" ")
                    self._text(element.tail)
        self._flush()

    def _begin(self, element: Any, tag: str) -> bool:
        """Begin an element; return whether what is in it is done with."""
        if kind := self._omissions.reason(element, tag):
            self._omissions.leave_out(element, kind)
            return True
        if tag not in _BLOCKS:
            return add_inline(self._inline, element, tag, self._omissions, line_break="\n")
        self._flush()
        if _HEADING.fullmatch(tag):
            heading = inner_text(element, self._omissions).strip()
            self._writer.heading(int(tag[1]), _PERMALINK.sub("", heading))
            return True
        if tag == "pre":
            text = inner_text(element, self._omissions, line_break="\n", squeeze=False)
            self._writer.block(text, whole=True)
            return True
        if tag == "table" and (rows := self._rows(element)):
            self._write_table(element, rows)
            return True
        if tag in ("ul", "ol"):
            first = element.get("start", "1")
            self._numbers.append((int(first) if first.isdigit() else 1) if tag == "ol" else None)
        if tag == "li":
            self._mark = "- "
            if self._numbers and (number := self._numbers[-1]) is not None:
                value = element.get("value", "")
                number = int(value) if value.isdecimal() and len(value) < 10 else number
                self._mark, self._numbers[-1] = f"{number}. ", number + 1
        return False

    def _text(self, text: str | None) -> None:
        if text:
            self._inline.add(squeeze_spaces(text))

    def _flush(self) -> None:
        text = str(self._inline).strip()
        if text:
            self._writer.block(self._mark + text)
            self._mark = ""
        self._inline.clear()

    def _rows(self, table: Any) -> list[list[Any]]:
        """Return a table's cells; none if it only places things on the page, and is to be read as text."""
        if next(table.iterdescendants("table", "h1", "h2", "h3", "pre"), None) is not None:
            return []
        reason = self._omissions.reason
        rows = [
            [cell for cell in row.iterchildren("td", "th") if not reason(cell, cell.tag)]
            for row in table.iter("tr")
            if not reason(row, "tr")
        ]
        return rows if len(rows) > 1 and max(map(len, rows)) > 1 else []

    def _write_table(self, table: Any, rows: Sequence[Sequence[Any]]) -> None:
        for part in table.iter("caption", "tr", "td", "th"):
            above = part.getparent()
            if (kind := self._omissions.reason(part, part.tag)) and not self._omissions.reason(
                above, above.tag
            ):
                self._omissions.leave_out(part, kind)
            elif part.tag == "caption" and not kind:
                self._writer.block(inner_text(part, self._omissions))
        header = _count_header_rows(rows)
        self._writer.table(self._grid(rows, header), header=header)

    def _grid(self, rows: Sequence[Sequence[Any]], header: int) -> list[list[str]]:
        """Return the texts of cells, each in its column.

        A cell over several rows counts in each. One over several columns names all of them in a header, and
        else stands in the first.
        """
        grid: list[list[str]] = []
        below: dict[int, tuple[int, str]] = {}  # by column: what reaches into how many more rows
        for row in rows:
            texts: list[str] = []
            for cell in row:
                _fill(texts, below)
                text, height = inner_text(cell, self._omissions), _span(cell, "rowspan")
                for column in range(min(_span(cell, "colspan"), max(1, _MOST_COLUMNS - len(texts)))):
                    column_text = text if column == 0 or len(grid) < header else ""
                    if height > 1:
                        below[len(texts)] = height - 1, column_text
                    texts.append(column_text)
            _fill(texts, below)
            grid.append(texts)
        return grid


def inner_text(root: Any, omissions: Omissions, *, line_break: str = " ", squeeze: bool = True) -> str:
    """Return what a reader sees of the text in an element; blocks within it stand apart."""
    line = InlineText()
    empty, ends = True, ""
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = element.tag
        if element is not root and tag in _BLOCKS and not empty and ends not in ("\n", " "):
            line.add(line_break)
            ends = line_break[-1]
        text = None
        if event == "end":
            text = element.tail if element is not root else None
            if element is not root and stands_apart(element):
                line.add(" ")
        elif element is not root and (kind := omissions.reason(element, tag)):
            omissions.leave_out(element, kind)
            walk.skip_subtree()
        elif element is not root and add_inline(line, element, tag, omissions, line_break=line_break):
            walk.skip_subtree()
            empty, ends = False, ""
        else:
            text = element.text
        if text:
            line.add(squeeze_spaces(text) if squeeze else text)
            empty, ends = False, text[-1]
    return str(line)


def add_inline(line: InlineText, element: Any, tag: str, omissions: Omissions, *, line_break: str) -> bool:
    """Add what an inline element is apart from its text; return whether its text is done with."""
    if tag == "br":
        line.add(line_break)
    elif tag in ("sup", "sub"):
        text = squeeze_spaces(inner_text(element, omissions)).strip()
        if tag == "sub":
            line.add_lowered(text)
        else:
            line.add_raised(text, note=_marks_note(element))
        return True
    elif tag == "math":
        line.add(squeeze_spaces(mathml_text(element)))
        return True
    elif tag == "img":
        text = _picture_text(element)
        line.add(text)
        # An empty text says that a picture only decorates.
        omissions.counts[PICTURES] += not text and element.get("alt") != ""
    elif tag == "input" and element.get("type") not in ("hidden", "checkbox", "radio"):
        omissions.counts[FORMS] += count_words(element.get("value", ""))
    elif tag in ("a", "span") and not _is_raised(element):
        text = "".join(element.itertext()).strip()
        if text and len(text) <= _NOTE_LENGTH:
            is_note = _names_note(element) and _MARK.fullmatch(text) is not None
            if tag == "a" and not is_note and "#" in element.get("href", "#") and _WAYS_BACK.fullmatch(text):
                return True
            in_brackets = _text_before(element).endswith(("[", "("))
            mark = is_note or (tag == "a" and _is_bare_mark(element, text))
            if mark and not in_brackets and element.find(".//sup") is None:
                line.add_raised(text, note=True)
                return True
    return False


def stands_apart(element: Any) -> bool:
    """Whether an element surely stands apart from what is right after it.

    Links in a row are a menu; elements of a page's own making mostly are blocks.
    """
    if element.tag in _BOXES:
        return True
    following = element.getnext()
    if element.tail or following is None or not isinstance(following.tag, str):
        return False
    tag, other = element.tag, following.tag
    return tag == other == "a" or (tag in _CONTROLS and other in _CONTROLS) or "-" in tag or "-" in other


_CONTROLS = frozenset("a button label input".split())
_BOXES = frozenset("select textarea input video audio iframe object".split())


def _marks_note(element: Any) -> bool:
    """Tell a raised mark of a note by the names and links of it, of what is in it and what it is in."""
    above = element.getparent()
    links = list(element.iter("a"))
    if above is not None and above.tag == "a":
        links.append(above)
    return _names_note(element) or any(
        _names_note(link) or _NOTE_TARGET.search(link.get("href", "")) or link.get("href", "").startswith("#")
        for link in links
    )


def _names_note(element: Any) -> bool:
    attributes = element.attrib
    names = (attributes.get(name, "") for name in ("class", "role", "epub:type", "rel", "data-type"))
    return _NOTE_NAME.search(" ".join(names)) is not None


def _is_raised(element: Any) -> bool:
    """Whether an element is in raised text: the mark is all of that."""
    above = element.getparent()
    parents = (above, above.getparent()) if above is not None else ()
    return any(each is not None and each.tag == "sup" for each in parents)


def _is_bare_mark(link: Any, text: str) -> bool:
    """Tell a note's mark that is a link without a raised position: a number that leads to a note."""
    return (
        text.strip("[]()").isdigit()
        and _NOTE_TARGET.search(link.get("href", "")) is not None
        and (text[0] == "[" or bool(_text_before(link)[-1:].strip()))
    )


def _text_before(element: Any) -> str:
    previous = element.getprevious()
    if previous is not None:
        return previous.tail or ""
    above = element.getparent()
    return "" if above is None else above.text or ""


def _picture_text(picture: Any) -> str:
    """Return what a picture shows as its page words it, "" for logos, icons and what a caption repeats."""
    text = " ".join(picture.get("alt", "").split())
    if len(text.split()) < _FEWEST_ALT_WORDS and not _FORMULA.search(text):
        return ""
    figure = next((above for above in picture.iterancestors() if above.tag == "figure"), None)
    caption = None if figure is None else next(figure.iter("figcaption"), None)
    if caption is not None and text in " ".join("".join(caption.itertext()).split()):
        return ""
    # Its formula may stand beside it, for programs that can read that.
    previous = picture.getprevious()
    if previous is not None and next(previous.iter("math"), None) is not None:
        return ""
    return f" {text} " if count_words(text) else ""


def _count_header_rows(rows: Sequence[Sequence[Any]]) -> int:
    """Return how many first rows name the columns: in <thead>, all <th>, or one with an empty corner."""
    count = 0
    for row in rows[:-1]:
        in_head = bool(row) and row[0].getparent().getparent().tag == "thead"
        if not (in_head or all(cell.tag == "th" for cell in row)) or (count and len(row) < 2):
            break
        count += 1
    if count == 0 and rows[0]:
        corner, *names = map(_has_text, rows[0])
        return int(bool(names) and not corner and all(names) and all(map(_begins_with_text, rows[1:])))
    return 1 if count == len(rows) - 1 and all(cell.tag == "th" for cell in rows[-1]) else count


def _has_text(cell: Any) -> bool:
    return any(text.strip() for text in cell.itertext())


def _begins_with_text(row: Sequence[Any]) -> bool:
    return bool(row) and _has_text(row[0])


def _fill(texts: list[str], below: dict[int, tuple[int, str]]) -> None:
    while (column := len(texts)) in below and column < _MOST_COLUMNS:
        rows_left, text = below.pop(column)
        if rows_left > 1:
            below[column] = rows_left - 1, text
        texts.append(text)


def _span(cell: Any, name: str) -> int:
    attribute = cell.get(name, "1").strip()
    return max(1, int(attribute)) if attribute.isdecimal() and len(attribute) < 10 else 1
