"""Excel's .xlsx."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.workbook import read_workbook

    return read_workbook(data, title)


READER = DocumentReader((".xlsx", ".xlsm"), _parse)
