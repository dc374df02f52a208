"""Exports of docling."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.docling import read_export

    return read_export(data, title)


READER = DocumentReader((".json",), _parse)
