"""Rich Text Format."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.rich_text import read_rtf

    return read_rtf(data, title)


READER = DocumentReader((".rtf",), _parse, packages=("striprtf",))
