"""PowerPoint's .pptx."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.slides import read_presentation

    return read_presentation(data, title)


READER = DocumentReader((".pptx", ".pptm"), _parse, packages=("lxml", "pptx"))
