"""Opening what is a zip of parts: presentations, workbooks, e-books."""

from __future__ import annotations

import io
from zipfile import BadZipFile, ZipFile

from corag.core.errors import DataError

_OLE = bytes.fromhex("d0cf11e0")  # Office before 2007, and what an encrypted file is wrapped in
_LARGEST = 1 << 29  # bytes of all parts; what unpacks to more is made to fill a memory


def open_archive(data: bytes, ending: str) -> ZipFile:
    """Open the zip that a document is. Raises :class:`DataError` for what is none, or too large."""
    if data.startswith(_OLE):
        raise DataError(
            f"it is encrypted or of an Office before 2007: save it as {ending} without a password."
        )
    try:
        archive = ZipFile(io.BytesIO(data))
    except (BadZipFile, ValueError, OSError):
        raise DataError(f"it is damaged, or no {ending}: open it and save it again.") from None
    if sum(part.file_size for part in archive.infolist()) > _LARGEST:
        raise DataError(f"it unpacks to over {_LARGEST >> 20} MB: split it.")
    return archive
