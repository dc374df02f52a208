"""Exports of docling."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path, PurePath

import orjson

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


def read_origin(file: Path) -> tuple[str, int | None] | None:
    """Return the name of the file that an export was made of, and the hash of its content if that is stated.

    None for any other file, and for an export that is damaged or names no file.
    """
    if not is_export(file):
        return None
    try:
        origin = orjson.loads(file.read_bytes())["origin"]
        name, file_hash = PurePath(origin["filename"]).name, origin.get("binary_hash")
    except (OSError, orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        return None  # its reader tells what is wrong with it
    return unicodedata.normalize("NFC", name), file_hash if isinstance(file_hash, int) else None


def _parse(data: bytes, title: str) -> Document:
    from retrieval.documents.docling import read_export

    return read_export(data, title)


READER = DocumentReader((ENDING,), _parse, packages=("lxml",))
