"""E-mails, and web pages saved as one file."""

from __future__ import annotations

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.mail import read_mail

    return read_mail(data, title)


READER = DocumentReader((".eml", ".mht", ".mhtml"), _parse, packages=("lxml",))
