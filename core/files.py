"""Reading and writing files so that a mistake is named and an interruption loses nothing."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from core.errors import DataError

# How the system says that there is no space: on the disk, for this user, for a file of this size.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def cache_folder() -> Path:
    """Return the folder for converted models and the like: $CORAG_CACHE, else ~/.cache/corag."""
    return Path(os.environ.get("CORAG_CACHE") or Path.home() / ".cache" / "corag")


def file_digest(path: str | Path) -> str:
    """Return 16 hexadecimal digits that identify a file's content, "" if there is no such file."""
    file = Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else ""


def open_text(path: str | Path) -> IO[str]:
    """Open a UTF-8 text file for reading, gzipped if its name ends in .gz; a byte order mark is passed over.

    Raises :class:`DataError` if it is missing or, while it is read, for the line that is not UTF-8.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file '{path}': check the path.")
    return _Utf8Text(path)


def read_text(path: str | Path) -> str:
    """Read a whole UTF-8 text file, as :func:`open_text` opens it."""
    with open_text(path) as stream:
        return stream.read()


class _Utf8Text(io.TextIOWrapper):
    """The text of a user's file, which may be in any encoding: what is not UTF-8 is named by its line."""

    def __init__(self, path: Path) -> None:
        super().__init__(_open_bytes(path), encoding="utf-8-sig")
        self._path = path

    def read(self, size: int | None = -1, /) -> str:
        try:
            return super().read(-1 if size is None else size)
        except UnicodeDecodeError:
            raise _not_utf8(self._path) from None

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # iterating calls it too
        try:
            return super().readline(size)
        except UnicodeDecodeError:
            raise _not_utf8(self._path) from None


def _open_bytes(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


def _not_utf8(path: Path) -> DataError:
    """Say which line of a file is not UTF-8, and how the file becomes so."""
    # Decoding is by blocks, so the position that Python tells is of no use: the lines are looked at again.
    with _open_bytes(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                encoding = "UTF-16" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else "LATIN1"
                unpack = f"zcat '{path}' | " if path.suffix == ".gz" else ""
                source = "" if unpack else f" '{path}'"
                byte, name = f"0x{line[error.start]:02x}", path.stem if unpack else path.name
                return DataError(
                    f"{path}, line {number}: byte {error.start + 1} ({byte}) is not UTF-8. If the file is in "
                    f"{encoding}, convert it: {unpack}iconv -f {encoding} -t UTF-8{source} > 'utf8-{name}'"
                )
    return DataError(f"{path}: its end is not UTF-8: it is torn within a character.")


def read_jsonl(path: str | Path) -> Iterator[dict[str, Any]]:
    """Stream the objects of a JSONL file (optionally .gz), skipping blank lines.

    Raises :class:`DataError` naming the file and the line when a line is not one JSON object.
    """
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = parse_json(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{path}, line {number}: not valid JSON ({_place(error)}).") from None
            if not isinstance(record, dict):
                raise DataError(
                    f"{path}, line {number}: expected a JSON object, found {type(record).__name__}."
                )
            yield record


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str) -> Any:
    """Parse JSON as :func:`json.loads` does, and refuse what could not be written again.

    Raises :class:`json.JSONDecodeError`, also for what is nested too deep for Python, and for the half of a
    character (a surrogate without the other), which no file and no tokenizer takes.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", text, 0) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # Python refuses whole numbers of thousands of digits
        raise json.JSONDecodeError(str(error).partition(";")[0], text, 0) from None
    if escape := _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise json.JSONDecodeError("half of a character, escaped", text, escape.start()) from None
    return value


def read_records(path: str | Path) -> Iterator[dict[str, Any]]:
    """Read a file of records in any of the shapes that datasets come in.

    JSONL (also under the name .json), a JSON list of objects, ``{"data": [...]}``, or columns ``{column:
    {row: value}}``.
    """
    if str(path).removesuffix(".gz").endswith(".json"):
        yield from _read_whole(Path(path))
    else:
        yield from read_jsonl(path)


def _place(error: json.JSONDecodeError) -> str:
    """Say what is wrong with JSON, and at which column; some messages end in "at" by themselves."""
    return f"{error.msg.removesuffix(' at')} at column {error.colno}"


def _has_scalar_rows(record: dict[str, Any]) -> bool:
    """Whether this object is one record, rather than a table of columns."""
    return not record or not all(isinstance(column, dict) for column in record.values())


def _read_whole(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with open_text(path) as stream:
            data = parse_json(stream.read())
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # one object per line, whatever the name says
            yield from read_jsonl(path)
            return
        raise DataError(f"{path}, line {error.lineno}: not valid JSON ({_place(error)}).") from None
    if isinstance(data, dict) and data and not _has_scalar_rows(data):
        columns = cast("dict[str, dict[str, Any]]", data)
        rows = next(iter(columns.values()))
        if any(column.keys() != rows.keys() for column in columns.values()):
            raise DataError(
                f"{path}: the columns have different rows: expected the same rows in each column."
            )
        yield from ({name: column[row] for name, column in columns.items()} for row in rows)
        return
    if isinstance(data, dict) and isinstance(data.get("data"), list):
        data = data["data"]
    if not isinstance(data, list) or not all(isinstance(record, dict) for record in data):
        raise DataError(f"{path}: expected a JSON list of objects or one object per line.")
    yield from data


def write_atomically(path: str | Path, text: str) -> None:
    """Write a whole file so that readers see the old or the new, never half: flush it to disk, then rename.

    Raises :class:`DataError` if it cannot be written.
    """
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give the temporary name under which to write a file; afterwards it takes the file's place.

    The folder is made if need be. Raises :class:`DataError` if any of this fails; what was written is then
    removed.
    """
    path = Path(path)
    temporary = path.parent / f"{path.name}.{os.getpid()}.tmp"  # beside it: renaming works on one disk only
    try:
        if path.is_dir():
            raise DataError(f"cannot write '{path}': it is a folder. Name a file to write.")
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _unwritten("", path, error, path.parent) from error


@contextlib.contextmanager
def filling(folder: Path, what: str) -> Iterator[None]:
    """Around whatever fills a folder from files.

    Raises :class:`DataError` where the system refuses to write (a full disk, a file in the way) or to read.
    """
    try:
        yield
    except OSError as error:
        here, there = folder.absolute(), Path(error.filename or folder).absolute()
        if not (there.is_relative_to(here) or here.is_relative_to(there)):
            raise DataError(f"cannot read '{error.filename}': {error.strerror}.") from error
        raise _unwritten(what, folder, error, folder) from error


def _unwritten(what: str, path: Path, error: OSError, folder: Path) -> DataError:
    in_file = isinstance(error, FileExistsError | NotADirectoryError)
    # Without a number of the system's it is numpy's, which says how many values a full disk took.
    why = error.strerror or f"the disk is full, it seems ({error})"
    why = f"'{folder}' is a file or lies in one" if in_file else why
    advice = "Free some space or choose" if error.errno in FULL or not error.strerror else "Choose"
    return DataError(f"cannot write {what}'{path}': {why}. {advice} another place.")


@contextlib.contextmanager
def made_once(folder: Path, what: str) -> Iterator[Path]:
    """Give a folder to fill, which afterwards takes the name ``folder``: one of the cache, not there yet.

    If another process was faster, its copy stays: it is as good. Raises :class:`DataError` if ``what`` cannot
    be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f"{folder.name}.", suffix=".tmp", dir=folder.parent, ignore_cleanup_errors=True
        ) as temporary:
            filling = Path(temporary) / folder.name
            # Others who use the cache may read this one; a temporary folder is its user's alone.
            filling.mkdir()
            yield filling
            filling.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise DataError(
                f"cannot write {what} to '{folder}': {error.strerror or error}. Free some space, or name "
                "another cache with CORAG_CACHE."
            ) from error
