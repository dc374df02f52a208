"""Files as they lie on the disk: plain, or compressed with gzip or zstd, by their first bytes."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from corag.core.errors import DataError
from corag.core.system.files import check_file
from corag.core.system.installation import require

ENDINGS = (".gz", ".zst")
"""Of names of compressed files; below them stands what the content is, as in ``corpus.jsonl.gz``."""

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"


def content_name(path: str | Path) -> str:
    """Return a file's path without the ending of a compression.

    >>> content_name("corpus.jsonl.gz"), content_name("corpus.jsonl")
    ('corpus.jsonl', 'corpus.jsonl')
    """
    name = str(path)
    return next((name[: -len(ending)] for ending in ENDINGS if name.lower().endswith(ending)), name)


def content_ending(path: str | Path) -> str:
    """Return the ending of a file's name, in small letters and without that of a compression.

    >>> content_ending("Report.PDF"), content_ending("notes.txt.gz")
    ('.pdf', '.txt')
    """
    return Path(content_name(path)).suffix.lower()


def check_records_file(path: str | Path) -> None:
    """Raise :class:`DataError` for what is no file that can be read, and read again."""
    check_file(path)
    if not Path(path).is_file():
        raise DataError(f"'{path}' is a pipe or a device, which gives its content once: save that as a file.")


def open_bytes(path: str | Path) -> BinaryIO:
    """Open a file for reading, unpacked if its first bytes say that it is compressed.

    Raises :class:`DataError` for a file that cannot be read. While it is read, a compressed one that is torn
    or damaged raises EOFError, OSError or zlib.error: see :func:`damage`.
    """
    check_records_file(path)
    file = Path(path).open("rb")  # noqa: SIM115 - the caller's
    start = file.peek(4)
    if start.startswith(_GZIP):
        return cast("BinaryIO", gzip.GzipFile(fileobj=file))
    if start.startswith(_ZSTD):
        require(f"'{path}', compressed with zstd,", "pyarrow", otherwise="unpack it with 'zstd -d'")
        import pyarrow

        return cast("BinaryIO", io.BufferedReader(pyarrow.CompressedInputStream(file, "zstd")))
    return file


DAMAGE = (EOFError, OSError, zlib.error)
"""What is raised where a compressed file is torn or damaged; OSError is the disk's, too."""


def damage(path: str | Path, error: BaseException, records: int) -> DataError:
    """Return the sentence for a file that breaks off or is damaged, after so many records."""
    if isinstance(error, OSError) and error.errno:
        return DataError(f"cannot read '{path}': {error.strerror}.")
    return DataError(
        f"{path}: it breaks off or is damaged after {records:,} records ({error}): it was not copied or "
        "downloaded whole. Fetch it again."
    )


def unpack(data: bytes, largest: int) -> bytes:
    """Return the content of a file that is in memory, unpacked if it is compressed with gzip.

    Raises :class:`DataError` if it is torn, or takes more than ``largest`` bytes.
    """
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            content = stream.read(largest + 1)
    except DAMAGE as error:
        raise DataError(f"its gzip data are damaged ({error}): it was not copied whole.") from None
    if len(content) > largest:
        raise DataError(f"it is gzip of over {largest // 1_000_000:,} MB of content: unpack it.")
    return content
