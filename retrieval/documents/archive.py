"""Opening what is a zip of parts: Word files, presentations, workbooks, e-books."""

from __future__ import annotations

import io
import zlib
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from corag.core.errors import DataError

_OLE = bytes.fromhex("d0cf11e0")  # Office before 2007, and what an encrypted file is wrapped in
_LARGEST = 1 << 29  # bytes; what unpacks to more is made to fill a memory
_PIECE = 1 << 20
_ENCRYPTION_FLAG = 1  # among a part's flags

DAMAGE = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)
"""What reading a damaged part raises, beside :class:`DataError` for one that would fill the memory."""


class Archive:
    """The zip that a document is. Raises :class:`DataError` for what is none."""

    def __init__(self, data: bytes, ending: str) -> None:
        if data.startswith(_OLE):
            raise DataError(
                f"it is encrypted or of an Office before 2007: save it as {ending} without a password."
            )
        try:
            self._zip = ZipFile(io.BytesIO(data))
        except DAMAGE:
            raise DataError(f"it is damaged, or no {ending}: open it and save it again.") from None
        self._data = data
        self.names = self._zip.namelist()

    def read(self, name: str) -> bytes:
        """Return a part. Raises KeyError for one that is not there, and :data:`DAMAGE`."""
        part = self._zip.getinfo(name)
        if part.file_size > _LARGEST:
            raise DataError(f"its part {name} unpacks to over {_LARGEST >> 20} MB: split the document.")
        self._check(part)
        return self._zip.read(name)

    def check_size(self) -> None:
        """Raise :class:`DataError` if all parts together are too large."""
        if sum(part.file_size for part in self._zip.infolist()) > _LARGEST:
            raise DataError(f"it unpacks to over {_LARGEST >> 20} MB: split it.")

    def check(self) -> None:
        """Raise :class:`DataError` if a part would fill the memory of a library that reads them by itself."""
        self.check_size()
        for part in self._zip.infolist():
            self._check(part)

    def _check(self, part: ZipInfo) -> None:
        """Raise :class:`DataError` if a part unpacks to more than the zip says of it.

        What reads it unpacks all before it looks at that number, and of a megabyte there can come a thousand.
        """
        if part.compress_type == ZIP_STORED or part.flag_bits & _ENCRYPTION_FLAG:
            return
        if part.compress_type != ZIP_DEFLATED:
            raise DataError(
                f"its part {part.filename} is packed as in no such file: open it and save it again."
            )
        head = self._data[part.header_offset : part.header_offset + 30]
        start = part.header_offset + 30 + sum(int.from_bytes(head[at : at + 2], "little") for at in (26, 28))
        unpacker, size = zlib.decompressobj(-zlib.MAX_WBITS), 0
        rest: bytes | memoryview = memoryview(self._data)[start : start + part.compress_size]
        try:
            while rest and not unpacker.eof:
                size += len(unpacker.decompress(rest, _PIECE))
                rest = unpacker.unconsumed_tail
                if size > part.file_size:
                    raise DataError(
                        f"its part {part.filename} is damaged, or unpacks to more than it says, as in files "
                        "that are made to fill a memory: open it and save it again."
                    )
        except zlib.error:
            return  # reading it says so
