"""Reading and writing files so that a mistake is named and an interruption loses nothing."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from corag.core.errors import DataError
from corag.core.seeds import new_digest

# How the system says that there is no space: on the disk, for this user, for a file of this size.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
Arguments = ParamSpec("Arguments")
Read = TypeVar("Read")
_kept: list[Callable[[], None]] = []


def keep_read(read: Callable[Arguments, Read]) -> Callable[Arguments, Read]:
    """Decorate what reads files: what it returned is kept until :func:`read_anew`."""
    kept = lru_cache(maxsize=256)(read)
    _kept.append(kept.cache_clear)
    return cast("Callable[Arguments, Read]", kept)


def read_anew() -> None:
    """Have files read anew: called once where a run begins, which keeps them as they are then."""
    for clear in _kept:
        clear()


def cache_folder() -> Path:
    """Return the folder for converted models and the like: $CORAG_CACHE, else ~/.cache/corag."""
    return Path(os.environ.get("CORAG_CACHE") or Path.home() / ".cache" / "corag")


def file_digest(path: str | Path) -> str:
    """Return 16 hexadecimal digits that identify a file's content, "" if there is no such file."""
    file = Path(path)
    if not file.is_file():
        return ""
    with file.open("rb") as stream:  # in blocks: sampled chains have gigabytes
        return hashlib.file_digest(stream, new_digest).hexdigest()


def check_file(path: str | Path) -> None:
    """Raise :class:`DataError` for a path that cannot be read as a file."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"'{path}' is a folder: name a file in it.")
    if not path.exists():
        raise DataError(f"there is no file '{path}': check the path.")
    if not os.access(path, os.R_OK):
        raise DataError(f"'{path}' may not be read by this user: check its permissions.")


def read_text(path: str | Path) -> str:
    """Read a file in UTF-8, with or without a byte order mark.

    Raises :class:`DataError` if it cannot be read, and for the line that is not UTF-8.
    """
    check_file(path)
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: it is not UTF-8: save it as UTF-8, such as with "
            f"iconv -f LATIN1 -t UTF-8 '{path}'."
        ) from None


def read_jsonl(path: str | Path) -> Iterator[dict[str, Any]]:
    """Stream the objects of a JSONL file of ours, skipping blank lines.

    Raises :class:`DataError` naming the file and the line that is not one JSON object in UTF-8.
    """
    check_file(path)
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = parse_json(line.decode())
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise DataError(f"{path}, line {number}: not valid JSON ({error}).") from None
            if not isinstance(record, dict):
                raise DataError(
                    f"{path}, line {number}: expected a JSON object, found {type(record).__name__}."
                )
            yield record


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str) -> Any:
    """Parse JSON as :func:`json.loads` does, and refuse what could not be written again.

    Raises :class:`json.JSONDecodeError`, also for what is nested too deep for Python, for numbers of
    thousands of digits, and for the half of a character (a surrogate without the other), which no file and no
    tokenizer takes.
    """
    try:
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError:
        raise
    except UnicodeEncodeError:
        raise json.JSONDecodeError("half of a character, escaped", text, 0) from None
    except (ValueError, RecursionError) as error:
        raise json.JSONDecodeError(str(error).partition(";")[0], text, 0) from None
    return value


def write_atomically(path: str | Path, text: str) -> None:
    """Write a whole file so that readers see the old or the new, never half: flush it to disk, then rename.

    Raises :class:`DataError` if it cannot be written.
    """
    with atomic_replace(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def atomic_replace(path: str | Path) -> Iterator[Path]:
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
        raise _write_error("", path, error, path.parent) from error


@contextlib.contextmanager
def build_folder(folder: Path, what: str, building: Path | None = None) -> Iterator[None]:
    """Around whatever fills a folder from files.

    ``building``: the folder that is filled to take its place, if that is another. Raises :class:`DataError`
    where the system refuses to write (a full disk, a file in the way) or to read.
    """
    try:
        yield
    except OSError as error:
        there = Path(error.filename or folder).absolute()
        folders = [each.absolute() for each in (folder, building) if each]
        if not any(there.is_relative_to(here) or here.is_relative_to(there) for here in folders):
            raise DataError(f"cannot read '{error.filename}': {error.strerror}.") from error
        raise _write_error(what, folder, error, folder) from error


def _write_error(what: str, path: Path, error: OSError, folder: Path) -> DataError:
    in_file = isinstance(error, FileExistsError | NotADirectoryError)
    full = error.errno in FULL
    why = f"'{folder}' is a file or lies in one" if in_file else error.strerror or str(error)
    advice = "Free some space or choose" if full else "Choose"
    return DataError(f"cannot write {what}'{path}': {why}. {advice} another place.")


def share_files(folder: Path) -> None:
    """Give a folder's files its own read permissions: libraries write weights for their own user alone."""
    mode = folder.stat().st_mode & 0o666
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod(file.stat().st_mode | mode)


@contextlib.contextmanager
def build_once(folder: Path, what: str) -> Iterator[Path]:
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
            share_files(filling)
            filling.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise DataError(
                f"cannot write {what} to '{folder}': {error.strerror or error}. Free some space, or name "
                "another cache with CORAG_CACHE."
            ) from error
