"""Jupyter's notebooks."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.notebook import read_notebook

    return read_notebook(data, title)


READER = DocumentReader((".ipynb",), _parse, packages=("lxml",))
