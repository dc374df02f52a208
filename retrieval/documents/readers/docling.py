"""Exports of docling."""

from __future__ import annotations

import re
from pathlib import Path

from retrieval.documents.document import Document
from retrieval.documents.reader import DocumentReader

ENDING = ".json"
_START = 4096  # bytes of a file, of which the schema's name is among the first
_SCHEMA_NAME = re.compile(rb'"schema_name"\s*:\s*"DoclingDocument"')


def is_export(file: Path) -> bool:
    """Whether a file is what docling exported, by its first bytes."""
    try:
        with file.open("rb") as stream:
            return _SCHEMA_NAME.search(stream.read(_START)) is not None
    except OSError:
        return False


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.docling import read_export

    return read_export(data, title)


READER = DocumentReader((ENDING,), _parse, packages=("lxml",))
