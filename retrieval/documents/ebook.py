"""E-books (.epub): the pages of the book in their order, each under its heading."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from lxml import etree

from corag.core.errors import DataError, reason
from corag.core.language.words import count_words
from retrieval.documents.archive import DAMAGE, Archive
from retrieval.documents.document import Document, describe_unread, join_documents, stated_title
from retrieval.documents.left_out import CONTENTS, PICTURES
from retrieval.documents.markup import read_html

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html")
_DAMAGE = "it is damaged, or no .epub: convert it with Calibre (ebook-convert FILE.epub NEW.epub)."


def read_ebook(data: bytes, title: str) -> Document:
    """Read an .epub (versions 2 and 3): the pages that its spine lists, without its table of contents.

    Pages that cannot be read are named in a note. Raises :class:`DataError` for what is no e-book, or
    protected against reading.
    """
    archive = Archive(data, ".epub")
    archive.check_size()
    try:
        package = _find_package(archive)
        root = _parse(archive.read(package))
        own_title = stated_title(root.findtext(".//{*}metadata/{*}title"), "")
        pages = dict(_pages(root, posixpath.dirname(package)))
    except (KeyError, *DAMAGE, etree.XMLSyntaxError):
        raise DataError(_DAMAGE) from None
    _refuse_protected(archive, set(pages))
    chapters, unread = [], {}
    for page, left_out in pages.items():
        try:
            content = archive.read(page)
            if left_out:
                words = 0 if left_out == PICTURES else count_words(" ".join(_parse(content).itertext()))
                chapters.append(Document("", (), (), {left_out: words or 1}))
            elif content.strip():
                chapters.append(_under_title(read_html(content, ""), own_title or title))
        except Exception as error:  # noqa: BLE001 - whatever a damaged page makes of the libraries
            unread[f"page {page}"] = reason(error)
    book = join_documents(own_title or title, chapters)
    return replace(book, notes=(*describe_unread(unread), *book.notes))


def _find_package(archive: Archive) -> str:
    """Return the name of the part that lists the others."""
    return unquote(_parse(archive.read(_CONTAINER)).xpath("string(//*[local-name()='rootfile']/@full-path)"))


def _pages(root: Any, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the pages in reading order, and why one is left out, "" if it is none of those."""
    items = {item.get("id"): item for item in root.iterfind(".//{*}manifest/{*}item")}
    for reference in root.iterfind(".//{*}spine/{*}itemref"):
        item = items.get(reference.get("idref"))
        if item is None:
            yield (
                str(reference.get("idref")),
                "",
            )  # there is no such part: it counts as a missing page
            continue
        is_page = item.get("media-type") in _PAGES
        left_out = CONTENTS if "nav" in item.get("properties", "").split() else "" if is_page else PICTURES
        yield posixpath.normpath(posixpath.join(folder, unquote(item.get("href", "")))), left_out


def _parse(xml: bytes) -> Any:
    # What a stranger's file names outside itself is not fetched.
    return etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True))


def _refuse_protected(archive: Archive, pages: set[str]) -> None:
    """Raise :class:`DataError` if pages are encrypted; fonts often are, which does not matter."""
    if _ENCRYPTION in archive.names:
        references = _parse(archive.read(_ENCRYPTION)).iterfind(".//{*}CipherReference")
        if pages & {unquote(reference.get("URI", "")) for reference in references}:
            raise DataError("it is protected against copying (DRM): get a copy without, or leave it out.")


def _under_title(chapter: Document, book: str) -> Document:
    """Put a page's title above its blocks, unless it is the book's."""
    if not chapter.title or chapter.title.casefold() == book.casefold():
        return chapter
    above = (chapter.title,)
    blocks = (
        block if block.headings[:1] == above else replace(block, headings=(*above, *block.headings))
        for block in chapter.blocks
    )
    return replace(chapter, blocks=tuple(blocks))
