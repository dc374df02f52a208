"""Reading and writing files so that a mistake is named and an interruption loses nothing."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from core.errors import DataError


def cache_folder() -> Path:
    """Return the folder for converted models and the like: $CORAG_CACHE, else ~/.cache/corag."""
    return Path(os.environ.get("CORAG_CACHE") or Path.home() / ".cache" / "corag")


def file_digest(path: str | Path) -> str:
    """Return 16 hexadecimal digits that identify a file's content, "" if there is no such file."""
    file = Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else ""


def open_text(path: str | Path) -> IO[str]:
    """Open a UTF-8 text file for reading, gzipped if its name ends in .gz; a byte order mark is passed over.

    Raises :class:`DataError` if it is missing.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file '{path}': check the path.")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


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
                raise DataError(
                    f"{path}, line {number}: not valid JSON ({error.msg} at column {error.colno})."
                ) from None
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
        raise DataError(
            f"{path}, line {error.lineno}: not valid JSON ({error.msg} at column {error.colno})."
        ) from None
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
        in_file = isinstance(error, FileExistsError | NotADirectoryError)
        why = f"'{path.parent}' is a file or lies in one" if in_file else error.strerror or error
        raise DataError(f"cannot write '{path}': {why}. Free some space or choose another place.") from error


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
