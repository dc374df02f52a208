"""HTML, and Markdown by way of it, so that headings, lists, tables and code are understood in one place."""

from __future__ import annotations

import re
from typing import Any

import yaml
from lxml import etree, html

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
    "head script style noscript template nav footer svg iframe object select button textarea".split()
)
_ROLES_LEFT_OUT = frozenset("navigation banner contentinfo search".split())
_INLINE = frozenset(
    "a abbr b bdi bdo big cite code data del dfn em font i img ins kbd label mark math q rp rt ruby s samp "
    "small span strike strong sub sup time tt u var wbr".split()
)
_PERMALINK = re.compile(r"\s*[¶\uf0c1]$|\s+#$")
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.{0,20000}?\n)(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)


def read_html(data: bytes, title: str) -> Document:
    """Read a web page: its main part if it marks one, without navigation, footer and hidden parts."""
    declared = _DECLARED.search(data[:_DECLARED_WITHIN])
    text, note = decode(
        data, next(filter(None, declared.groups())).decode("ascii", "replace") if declared else ""
    )
    return _read(text, title, [note] if note else [])


def read_markdown(data: bytes, title: str) -> Document:
    """Read Markdown (CommonMark with tables), with a title from its front matter if it has one."""
    from markdown_it import MarkdownIt

    text, note = decode(data)
    text = clean(text)
    front = _FRONT_MATTER.match(text)
    # A ruler may open a text too: front matter has values by name.
    if front and isinstance(values := _yaml(front[1]), dict):
        title, text = stated_title(values.get("title"), title), text[front.end() :]
    return _read(MarkdownIt("commonmark").enable("table").render(text), title, [note] if note else [])


def _yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _read(text: str, title: str, notes: list[str]) -> Document:
    # As bytes of a known encoding: lxml refuses characters beside a declaration of how they are encoded.
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(clean(text).encode(), parser=parser)
    except etree.ParserError:
        raise DataError("there is no text in it.") from None
    writer = Writer(stated_title(root.findtext("head/title"), title))
    writer.notes += notes
    if broken_off := [entry.message for entry in parser.error_log if entry.level_name == "FATAL"]:
        writer.notes.append(f"read in part only ({broken_off[0]})")
    mains = root.xpath("//main | //*[@role='main']")
    _TreeWalk(writer).through(mains[0] if len(mains) == 1 else root)
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
                if tag in ("ul", "ol") and self._numbers:
                    self._numbers.pop()
                if tag not in _INLINE:
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
        if tag in _INLINE:
            return False
        self._flush()
        if _HEADING.fullmatch(tag):
            self._writer.heading(int(tag[1]), _PERMALINK.sub("", element.text_content().strip()))
            return True
        if tag == "pre":
            self._writer.block(element.text_content(), whole=True)
            return True
        if tag == "table" and (rows := _rows(element)):
            self._writer.table(rows, header=_has_header(element))
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


def _rows(table: Any) -> list[list[str]]:
    """Return a table's cells; none if it only places things on the page, and is to be read as text."""
    if next(table.iterdescendants("table", "h1", "h2", "h3", "pre"), None) is not None:
        return []
    rows = [[_cell(cell) for cell in row.iterchildren("td", "th")] for row in table.iter("tr")]
    return rows if len(rows) > 1 and max(map(len, rows)) > 1 else []


def _cell(cell: Any) -> str:
    parts = []
    for event, element in etree.iterwalk(cell, events=("start", "end")):
        tail = element.tail if element is not cell else ""
        parts += ["" if element.tag in _INLINE else " ", (element.text if event == "start" else tail) or ""]
    return "".join(parts)


def _has_header(table: Any) -> bool:
    first = next(table.iter("tr"))
    return all(cell.tag == "th" for cell in first.iterchildren("td", "th"))
