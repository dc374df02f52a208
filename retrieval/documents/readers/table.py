"""Tables as text, where they lie among documents."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.rows import read_table_file

    return read_table_file(data, title)


READER = DocumentReader((".csv", ".tsv", ".tab"), _parse)
