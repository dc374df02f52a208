"""Opening files whatever packs them: by their first bytes, since names are changed and downloads unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from corag.core.errors import DataError
from corag.core.installation import require

ENDINGS = (".gz", ".zst", ".bz2", ".xz")
"""Of names of compressed files; below them stands what the content is, as in ``corpus.jsonl.gz``."""

_CHUNK = 1 << 17  # bytes of a compressed file that are read at once


class TornFileError(DataError):
    """A compressed file that is damaged or was not copied to its end. ``lines``: those that were read."""

    def __init__(self, path: Path, what: str, lines: int, unit: str = "line") -> None:
        super().__init__(
            f"{path}: {what} after {lines:,} {unit}{'s' * (lines != 1)}: it was not copied or downloaded "
            "whole. Fetch it again."
        )
        self.path, self.what, self.lines = path, what, lines

    def after_records(self, count: int) -> TornFileError:
        """Return this error with the number of whole records that were read."""
        return TornFileError(self.path, self.what, count, "record")


@dataclass(frozen=True)
class Packing:
    """A way to compress a file.

    Attributes:
        name: what people call it.
        start: the first bytes of such a file.
        open: returns the content of an open file as a stream. Raises EOFError or the format's own error while
            it is read, if the file is torn or damaged.
    """

    name: str
    start: bytes
    open: Callable[[BinaryIO], IO[bytes]]


def _open_zstd(file: BinaryIO) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(_ZstdReader(file), _CHUNK))


PACKINGS = (
    Packing("gzip", b"\x1f\x8b\x08", lambda file: cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))),
    Packing("zstd", b"\x28\xb5\x2f\xfd", _open_zstd),
    Packing("bzip2", b"BZh", bz2.BZ2File),
    Packing("xz", b"\xfd7zXZ\x00", lzma.LZMAFile),
)


def content_name(path: str | Path) -> str:
    """Return a file's path without the ending of a compression.

    >>> content_name("corpus.jsonl.gz"), content_name("corpus.jsonl")
    ('corpus.jsonl', 'corpus.jsonl')
    """
    name = str(path)
    return next((name[: -len(ending)] for ending in ENDINGS if name.lower().endswith(ending)), name)


def find_packing(start: bytes) -> Packing | None:
    """Return how a file that begins with these bytes is compressed; None if it is not."""
    return next((packing for packing in PACKINGS if start.startswith(packing.start)), None)


def open_bytes(path: str | Path) -> BinaryIO:
    """Open a file for reading, unpacked if its first bytes say that it is compressed: names may be wrong.

    Known are gzip, zstd (with the package ``zstandard``), bzip2 and xz. While it is read, a compressed file
    that is torn or damaged raises :class:`TornFileError`.
    """
    path = Path(path)
    file = path.open("rb")
    # A look ahead, not a read: of a pipe nothing can be put back.
    packing = find_packing(file.peek(8))
    if packing is None:
        return file
    try:
        return cast("BinaryIO", io.BufferedReader(_ContentReader(path, packing, file), _CHUNK))
    except BaseException:
        file.close()
        raise


def unpack(data: bytes, packing: Packing, largest: int) -> bytes:
    """Return the content of a compressed file that is in memory.

    Raises :class:`DataError` if it is torn, or takes more than ``largest`` bytes.
    """
    try:
        with packing.open(io.BytesIO(data)) as stream:
            content = stream.read(largest + 1)
    except _damages() as error:
        raise DataError(f"{_describe(packing, error)}: it was not copied or downloaded whole.") from None
    if len(content) > largest:
        raise DataError(f"it is {packing.name} of over {largest // 1_000_000:,} MB of content: unpack it.")
    return content


class _ContentReader(io.RawIOBase):
    """The content of a compressed file; what is wrong with it is named."""

    def __init__(self, path: Path, packing: Packing, file: BinaryIO) -> None:
        self._path, self._packing, self._file = path, packing, file
        self._stream = cast("Any", packing.open(file))
        self._lines = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            # One look at the file each: what was unpacked before a tear is counted, and not lost with it.
            data = self._stream.read1(len(buffer))
        except _damages() as error:
            if isinstance(error, OSError) and error.errno:  # the disk's, not the content's
                raise
            raise TornFileError(self._path, _describe(self._packing, error), self._lines) from None
        self._lines += data.count(b"\n")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()


def _describe(packing: Packing, error: BaseException) -> str:
    if isinstance(error, EOFError):
        return f"its {packing.name} data break off"
    return f"its {packing.name} data are damaged ({error})"


def _damages() -> tuple[type[BaseException], ...]:
    """Return what the formats' readers raise for a damaged file."""
    # Of bzip2 it is a bare OSError, without a number of the system's.
    return (EOFError, zlib.error, lzma.LZMAError, OSError, *_zstd_errors())


def _zstd_errors() -> tuple[type[BaseException], ...]:
    try:
        import zstandard
    except ImportError:
        return ()
    return (zstandard.ZstdError,)


class _ZstdReader(io.RawIOBase):
    """The content of a zstd file of one frame or several.

    The package has a reader of its own, but that one ends without a word where a file is torn.
    """

    def __init__(self, file: BinaryIO) -> None:
        name = getattr(file, "name", "the file")  # bytes in memory have none
        require(f"'{name}', compressed with zstd,", "zstandard", otherwise="unpack it with 'zstd -d'")
        import zstandard

        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._in_frame = False  # whether some of the frame has been read
        self._content = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._content:
            if self._frame.eof:
                rest = self._frame.unused_data
                self._frame, self._in_frame = self._decompressor.decompressobj(), False
            else:
                rest = b""
            rest = rest or self._file.read(_CHUNK)
            if not rest:
                if self._in_frame:
                    raise EOFError
                return 0
            self._in_frame = True
            self._content = memoryview(self._frame.decompress(rest))
        size = min(len(buffer), len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size
