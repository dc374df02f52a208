"""Word's .docx."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.word import read_docx

    return read_docx(data, title)


READER = DocumentReader((".docx",), _parse, packages=("lxml",))
