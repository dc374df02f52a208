"""Web pages."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.markup import read_html

    return read_html(data, title)


def _parse_main(data: bytes, title: str) -> Document:
    from retrieval.documents.markup import read_main_html

    return read_main_html(data, title)


READER = DocumentReader(
    (".html", ".htm", ".xhtml"), _parse, packages=("lxml",), pages=True, parse_main=_parse_main
)
