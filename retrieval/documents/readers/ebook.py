"""E-books."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.ebook import read_ebook

    return read_ebook(data, title)


READER = DocumentReader((".epub",), _parse, packages=("lxml",))
