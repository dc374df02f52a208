"""Plain text."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.plain import read_text

    return read_text(data, title)


READER = DocumentReader((".txt", ".text"), _parse)
