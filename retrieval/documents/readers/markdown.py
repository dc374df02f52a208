"""Markdown."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.markdown import read_markdown

    return read_markdown(data, title)


READER = DocumentReader((".md", ".markdown"), _parse, packages=("lxml",), pages=True)
