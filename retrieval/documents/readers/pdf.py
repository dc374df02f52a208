"""PDF."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.pdf import read_pdf

    return read_pdf(data, title)


READER = DocumentReader((".pdf",), _parse, packages=("pypdfium2",))
