"""HTML, and Markdown by way of it, so that headings, lists, tables and code are understood in one place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import yaml
from lxml import etree, html
from lxml.html import defs

from core.errors import DataError
from retrieval.documents.document import Document, Writer, clean, stated_title
from retrieval.documents.plain import decode

_DECLARED = re.compile(
    rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]+encoding=["']([\w.-]+)""", re.I
)
_DECLARED_WITHIN = 4096  # bytes; HTML asks for the first 1,024
_HEADING = re.compile(r"h[1-6]")
# What a page has around its text, and what is no text.
_LEFT_OUT = frozenset(
    "head script style noscript template nav footer svg iframe object select button textarea annotation "
    "annotation-xml".split()
)
_ROLES_LEFT_OUT = frozenset("navigation banner contentinfo search".split())
# All others are inline, those that HTML does not know too.
_BLOCKS = frozenset(
    "address article aside blockquote body caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li "
    "listing main menu nav ol optgroup option p plaintext pre search section summary table tbody td tfoot th "
    "thead tr ul xmp".split()
)
_KNOWN = defs.tags | frozenset("math mfrac mi mn mo mrow msqrt msub msup picture semantics svg wbr".split())
_TAG = re.compile(r"</?([a-z][a-z0-9]*)\b", re.IGNORECASE)
_FILLED = 100  # columns that merged cells may fill, lest a broken page fill the memory
_PERMALINK = re.compile(r"\s*[¶\uf0c1]$|\s+#$")
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.{0,20000}?\n)(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)


def read_html(data: bytes, title: str) -> Document:
    """Read a web page: its main part if it marks one, without navigation, footer and hidden parts."""
    declared = _DECLARED.search(data[:_DECLARED_WITHIN])
    text, note = decode(
        data, next(filter(None, declared.groups())).decode("ascii", "replace") if declared else ""
    )
    return _read(text, title, [note] if note else [], narrow=True)


def read_markdown(data: bytes, title: str) -> Document:
    """Read Markdown (CommonMark with tables), with a title from its front matter if it has one."""
    from markdown_it import MarkdownIt

    text, note = decode(data)
    text = clean(text)
    front = _FRONT_MATTER.match(text)
    # A ruler may open a text too: front matter has values by name.
    if front and isinstance(values := _yaml(front[1]), dict):
        title, text = stated_title(values.get("title"), title), text[front.end() :]
    parser = MarkdownIt("commonmark").enable("table")
    parser.add_render_rule("html_inline", _inline_html)
    # What is written as a tag does not tell which part is the main one.
    return _read(parser.render(text), title, [note] if note else [], narrow=False)


def _inline_html(_: Any, tokens: Sequence[Any], place: int, *__: Any) -> str:
    # A placeholder in angle brackets is text that its writer forgot to mark as code.
    content: str = tokens[place].content
    tag = _TAG.match(content)
    return escape(content) if tag and tag[1].lower() not in _KNOWN else content


def _yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _read(text: str, title: str, notes: list[str], *, narrow: bool) -> Document:
    # As bytes of a known encoding: lxml refuses characters beside a declaration of how they are encoded.
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(clean(text).encode(), parser=parser)
    except etree.ParserError:
        raise DataError("there is no text in it.") from None
    if broken_off := [entry.message for entry in parser.error_log if entry.level_name == "FATAL"]:
        notes = [*notes, f"read in part only ({broken_off[0]})"]
    title = stated_title(root.findtext("head/title"), title)
    mains = root.xpath("//main | //*[@role='main']") if narrow else []
    document = _taken_down(mains[0] if len(mains) == 1 else root, title, notes)
    # A main part may be there for a script to fill.
    return document if document.blocks or not mains else _taken_down(root, title, notes)


def _taken_down(root: Any, title: str, notes: Sequence[str]) -> Document:
    writer = Writer(title)
    writer.notes += notes
    _TreeWalk(writer).through(root)
    return writer.document()


class _TreeWalk:
    """Goes through a tree in reading order: text of inline elements gathers until a block begins or ends."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._inline: list[str] = []
        self._mark = ""  # of the list item that has begun: a dash or its number
        self._numbers: list[int | None] = []  # of the next item in each list that is open; None for a dash

    def through(self, root: Any) -> None:
        # Events instead of recursion: pages out of a generator nest deeper than Python does.
        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            tag = element.tag
            if event == "start":
                if self._begin(element, tag):
                    walk.skip_subtree()
                else:
                    self._text(element.text)
            else:
                if tag in ("ul", "ol") and self._numbers and not _is_left_out(element, tag):
                    self._numbers.pop()
                if tag in _BLOCKS:
                    self._flush()
                if element is not root:
                    self._text(element.tail)
        self._flush()

    def _begin(self, element: Any, tag: str) -> bool:
        """Begin an element; return whether what is in it is done with."""
        if _is_left_out(element, tag):
            return True
        if tag == "br":
            self._inline.append("\n")
            return False
        if tag not in _BLOCKS:
            return False
        self._flush()
        if _HEADING.fullmatch(tag):
            self._writer.heading(int(tag[1]), _PERMALINK.sub("", _inner_text(element).strip()))
            return True
        if tag == "pre":
            self._writer.block(_inner_text(element, line_break="\n"), whole=True)
            return True
        if tag == "table" and (rows := _rows(element)):
            caption = element.find("caption")
            if caption is not None and not _is_left_out(caption, "caption"):
                self._writer.block(_inner_text(caption))
            header = all(cell.tag == "th" for cell in rows[0])
            self._writer.table(_grid(rows, header=header), header=header)
            return True
        if tag in ("ul", "ol"):
            first = element.get("start", "1")
            self._numbers.append((int(first) if first.isdigit() else 1) if tag == "ol" else None)
        if tag == "li":
            self._mark = "- "
            if self._numbers and (number := self._numbers[-1]) is not None:
                self._mark, self._numbers[-1] = f"{number}. ", number + 1
        return False

    def _text(self, text: str | None) -> None:
        if text:
            self._inline.append(re.sub(r"\s+", " ", text))

    def _flush(self) -> None:
        text = "".join(self._inline)
        self._inline.clear()
        if text.strip():
            self._writer.block(self._mark + text.strip())
            self._mark = ""


def _is_left_out(element: Any, tag: str) -> bool:
    return (
        tag in _LEFT_OUT
        or element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
        or element.get("role") in _ROLES_LEFT_OUT
        or _HIDDEN.search(element.get("style", "")) is not None
    )


def _rows(table: Any) -> list[list[Any]]:
    """Return a table's cells; none if it only places things on the page, and is to be read as text."""
    if next(table.iterdescendants("table", "h1", "h2", "h3", "pre"), None) is not None:
        return []
    rows = [
        [cell for cell in row.iterchildren("td", "th") if not _is_left_out(cell, cell.tag)]
        for row in table.iter("tr")
        if not _is_left_out(row, "tr")
    ]
    return rows if len(rows) > 1 and max(map(len, rows)) > 1 else []


def _grid(rows: Sequence[Sequence[Any]], *, header: bool) -> list[list[str]]:
    """Return the texts of cells, each in its column.

    A cell over several rows counts in each. One over several columns names all of them in a header, and else
    stands in the first.
    """
    grid: list[list[str]] = []
    below: dict[int, tuple[int, str]] = {}  # by column: what reaches into how many more rows
    for row in rows:
        texts: list[str] = []
        for cell in row:
            _fill(texts, below)
            text, height = _inner_text(cell), _span(cell, "rowspan")
            for column in range(min(_span(cell, "colspan"), max(1, _FILLED - len(texts)))):
                shown = text if column == 0 or (header and not grid) else ""
                if height > 1:
                    below[len(texts)] = height - 1, shown
                texts.append(shown)
        _fill(texts, below)
        grid.append(texts)
    return grid


def _fill(texts: list[str], below: dict[int, tuple[int, str]]) -> None:
    while (column := len(texts)) in below and column < _FILLED:
        left, text = below.pop(column)
        if left > 1:
            below[column] = left - 1, text
        texts.append(text)


def _span(cell: Any, name: str) -> int:
    stated = cell.get(name, "1").strip()
    return max(1, int(stated)) if stated.isdecimal() and len(stated) < 10 else 1


def _inner_text(root: Any, line_break: str = " ") -> str:
    """Return what a reader sees of the text in an element; blocks within it stand apart."""
    parts: list[str] = []
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = element.tag
        if element is not root and tag in _BLOCKS and parts and not parts[-1].endswith(("\n", " ")):
            parts.append(line_break)
        if event == "end":
            text = element.tail if element is not root else ""
        elif element is not root and _is_left_out(element, tag):
            walk.skip_subtree()
            continue
        else:
            text = line_break if tag == "br" else element.text
        if text:
            parts.append(text)
    return "".join(parts)
