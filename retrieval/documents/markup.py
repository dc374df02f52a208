"""Web pages: their main part, without what surrounds it; what is left out is counted by what it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

from lxml import etree, html

from corag.core.errors import DataError
from corag.core.language.words import count_words
from corag.data.text import DecodedText, decode
from retrieval.documents.document import Document, Writer, clean, stated_title
from retrieval.documents.html_tree import inner_text, write_tree
from retrieval.documents.left_out import AROUND, ELSEWHERE
from retrieval.documents.omissions import Omissions

_ENCODING_DECLARATION = re.compile(
    rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]+encoding=["']([\w.-]+)""", re.I
)
_DECLARED_WITHIN = 4096  # bytes; HTML asks for the first 1,024
# What is in these is no markup until they end.
_RAW = re.compile(r"<(/?)(script|style|title|textarea|iframe|noembed|noframes|xmp)\b[^<>]*>", re.IGNORECASE)
_MARKUP = re.compile(r"<(?:p|div|h[1-6]|ul|ol|table|article|section|main|body)\b", re.IGNORECASE)
_XHTML = re.compile(r"<\?xml|xhtml", re.IGNORECASE)
_EMPTY_TAG = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)"
    r"([A-Za-z][\w-]*)((?:\s[^<>]*)?)/>",
    re.IGNORECASE,
)
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
# Of a page that nests deeper than the parser goes.
_NESTING = re.compile(
    r"</?(?:div|section|article|blockquote|center|form|ul|ol|li|dl|dd|table|tbody|tr|td|a|span|font|b|i|u)\b[^<>]*>",
    re.IGNORECASE,
)
# The parser knows some tags of HTML 5 for no empty ones, and would put what follows into them.
_UNKNOWN_EMPTY = re.compile(r"<(embed|source|track)\b[^<>]*>", re.IGNORECASE)
_NO_FRAMES = re.compile(r"(</?)noframes\b", re.IGNORECASE)
_METADATA = frozenset("base link meta noscript script style template title".split())


def read_html(data: bytes, title: str) -> Document:
    """Read a web page: its main part if it marks one, without navigation, footers and hidden parts.

    What is left out is counted, and read after all if it is most of the page's text.
    """
    decoding = _decode(data)
    return read_markup(decoding.text, title, [decoding.note] if decoding.note else [], narrow=True)


def read_main_html(data: bytes, title: str) -> Document:
    """Read the main text of a web page as trafilatura finds it (Barbaresi, ACL 2021 demonstrations).

    The words of the rest are counted. A page in which it finds nothing is read as by :func:`read_html`.
    """
    from trafilatura import extract

    whole = read_html(data, title)
    main = extract(_decode(data).text, output_format="html", include_comments=False, include_tables=True)
    document = read_markup(main or "<p></p>", whole.title, whole.notes, narrow=False, is_title_stated=True)
    if not document.blocks:
        return replace(whole, notes=(*whole.notes, "no main text was found: all of it is read"))
    left_out = Counter(whole.left_out)
    left_out[AROUND] += max(0, _count(whole) - _count(document))
    return replace(document, left_out=dict(+left_out))


def _decode(data: bytes) -> DecodedText:
    declaration = _ENCODING_DECLARATION.search(data[:_DECLARED_WITHIN])
    return decode(
        data, next(filter(None, declaration.groups())).decode("ascii", "replace") if declaration else ""
    )


def _count(document: Document) -> int:
    return sum(count_words(block.text) for block in document.blocks)


def read_markup(
    text: str, title: str, notes: Sequence[str], *, narrow: bool, is_title_stated: bool = False
) -> Document:
    """Read the markup of a page.

    ``narrow``: to its main part, if it marks one. ``is_title_stated``: ``title`` is what the
    document calls itself.
    """
    text = _repair(clean(text))
    root, problem = _parse(text)
    if "depth" in problem:  # browsers flatten such a page, too
        root, problem = _parse(_NESTING.sub("<p>", text))
        notes = [*notes, "nested too deep: read without its divisions"]
    if problem:
        notes = [*notes, f"read in part only ({problem})"]
    _end_head(root)
    title = title if is_title_stated else stated_title(root.findtext("head/title"), title)
    mains = root.xpath("//main | //*[@role='main']") if narrow else []
    main = mains[0] if len(mains) == 1 else None
    return _write(root, main, title, notes, is_title_stated=is_title_stated)


def _parse(text: str) -> tuple[Any, str]:
    """Return the root of a page, and why the rest of it is not read, "" if all is."""
    # As bytes of a known encoding: lxml refuses characters beside a declaration of how they are encoded.
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(text.encode(), parser=parser)
    except etree.ParserError:
        raise DataError("there is no text in it.") from None
    return root, next((entry.message for entry in parser.error_log if entry.level_name == "FATAL"), "")


def _end_head(root: Any) -> None:
    """Move to the body what stands in the head and cannot: lxml does not know that HTML 5's tags end it."""
    head, body = root.find("head"), root.find("body")
    children = () if head is None else list(head)
    start = next((position for position, child in enumerate(children) if child.tag not in _METADATA), None)
    if start is None:
        return
    if body is None:
        body = etree.SubElement(root, "body")
    for position, child in enumerate(children[start:]):
        body.insert(position, child)


def _write(root: Any, main: Any, title: str, notes: Sequence[str], *, is_title_stated: bool) -> Document:
    """Write a page; kinds of parts that turn out to hold most of its text are read in a further round."""
    kinds: frozenset[str] = frozenset()
    while True:
        writer, omissions = Writer(title, is_title_stated=is_title_stated), Omissions(root, kinds)
        writer.notes += notes
        within = None if ELSEWHERE in kinds else main
        if within is not None and (heading := _heading_above(root, within, omissions)):
            writer.heading(1, heading)
        write_tree(root, writer, omissions, within=within)
        kind = omissions.to_take_back(writer.count_words()) if omissions.prose else ""
        if not kind:
            break
        kinds |= {kind}
    writer.left_out.update(+omissions.counts)
    if kinds:
        writer.notes.append(f"most of its text is in {' and '.join(sorted(kinds))}: read all the same")
    if omissions.read_anyway:
        writer.notes.append(
            f"{omissions.read_anyway:,} words of text are marked as navigation or a form: read all the same"
        )
    return writer.document()


def _heading_above(root: Any, main: Any, omissions: Omissions) -> str:
    """Return the heading of the page if it stands before its main part."""
    headings = list(root.iter("h1"))
    around = [headings[0], *headings[0].iterancestors()] if len(headings) == 1 else []
    if not around or main in around or any(omissions.reason(part, part.tag) for part in around):
        return ""
    return inner_text(headings[0], omissions).strip()


def _repair(text: str) -> str:
    """Take the opening away of what is never closed and would keep the rest of the page out of sight."""
    if _XHTML.search(text[:1000]):
        # Of a page that is read as HTML only empty elements may close themselves.
        text = _EMPTY_TAG.sub(r"<\1\2></\1>", _CDATA.sub(lambda match: escape(match[1]), text))
    if "<frameset" in text.lower():
        text = _NO_FRAMES.sub(r"\1div", text)
    text = _UNKNOWN_EMPTY.sub(r"\g<0></\1>", text)
    closed = max(text.rfind("-->"), text.rfind("--!>")) + 1
    text = text[:closed] + text[closed:].replace("<!--", " ")
    for tag in {tag[2].lower(): tag for tag in _RAW.finditer(text)}.values():
        if not tag[1] and _MARKUP.search(text, tag.end()):
            text = text[: tag.start()] + " " * len(tag[0]) + text[tag.end() :]
    return text
