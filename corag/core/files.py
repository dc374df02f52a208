"""Reading and writing files so that a mistake is named and an interruption loses nothing."""

from __future__ import annotations

import codecs
import contextlib
import errno
import hashlib
import io
import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from corag.core.compression import TornFileError, content_name, open_bytes
from corag.core.encodings import encoding_title, find_mark, guess_encoding, is_nearly_utf8
from corag.core.errors import DataError
from corag.core.file_types import HTML, START, detect_file_type
from corag.core.seeds import new_digest

# How the system says that there is no space: on the disk, for this user, for a file of this size.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NUMPY_FULL = re.compile(r"\d+ requested and \d+ written")


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


def open_text(
    path: str | Path,
    take_strays: Callable[[int], None] | None = None,
    take_guess: Callable[[str], None] | None = None,
) -> IO[str]:
    """Open a UTF-8 text file for reading, unpacked if it is compressed (:func:`open_bytes`).

    A byte order mark is passed over; that of UTF-16 or UTF-32 says that the file is in it.

    Args:
        path: the file.
        take_strays: takes the number of bytes, each time that some are not UTF-8 in a file that is but for a
            few: they become U+FFFD. Without, they are an error.
        take_guess: takes a sentence, without its end, where the encoding of a file that is not UTF-8 is a
            guess without doubt, as of a table that Excel wrote. Without, such a file is an error.

    Raises:
        DataError: if the file is missing or is something else than text by its first bytes; while it is read,
            for the line that is not UTF-8 and for the end of a torn file.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file '{path}': check the path.")
    stream = open_bytes(path)
    try:
        start = cast("io.BufferedReader", stream).peek(START)
        file_type = detect_file_type(start)
        # A prompt may be about web pages. As a table or as JSON one is refused anyway, and named there.
        if file_type and file_type is not HTML:
            raise DataError(f"{path}: expected text, but this is {file_type}: {file_type.advice}.")
        encoding = find_mark(start)
        if take_guess and not encoding and (codec := _guess_without_doubt(path)):
            take_guess(f"not UTF-8: read as {encoding_title(codec)}")
            return io.TextIOWrapper(stream, encoding=codec, errors="replace")
        return _CheckedText(path, stream, encoding or "utf-8-sig", take_strays)
    except BaseException:
        stream.close()
        raise


def read_text(path: str | Path, take_strays: Callable[[int], None] | None = None) -> str:
    """Read a whole text file, as :func:`open_text` opens it."""
    with open_text(path, take_strays) as stream:
        return stream.read()


class _CheckedText(io.TextIOWrapper):
    """The text of a user's file, which may be in any encoding: what is not UTF-8 is named by its line."""

    def __init__(
        self, path: Path, stream: BinaryIO, encoding: str, take_strays: Callable[[int], None] | None
    ) -> None:
        self._errors = "strict"
        if take_strays:
            # Handlers of errors have names and stay for good, so the names are used again.
            self._errors = _free_handlers.pop() if _free_handlers else f"corag-strays-{next(_numbers)}"
            codecs.register_error(self._errors, _StrayHandler(path, take_strays))
        super().__init__(stream, encoding=encoding, errors=self._errors)
        self._path = path

    def close(self) -> None:
        if not self.closed and self._errors != "strict":
            _free_handlers.append(self._errors)
        super().close()

    def read(self, size: int | None = -1, /) -> str:
        try:
            return super().read(-1 if size is None else size)
        except UnicodeDecodeError:
            raise _utf8_error(self._path) from None

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # iterating calls it too
        try:
            return super().readline(size)
        except UnicodeDecodeError:
            raise _utf8_error(self._path) from None


def _guess_without_doubt(path: Path) -> str:
    """Return the codec of a file that is not UTF-8, "" if it is or if the guess would be in doubt."""
    with open_bytes(path) as stream:
        start = stream.read(10 * _SAMPLE)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(start)  # a character that the sample's end cuts is no mistake
        return ""
    except UnicodeDecodeError:
        pass
    if is_nearly_utf8(start) or b"\0" in start:
        return ""
    try:
        codec, doubt = guess_encoding(start)
    except DataError:
        return ""
    return "" if doubt else codec


_free_handlers: list[str] = []
_numbers = itertools.count()


class _StrayHandler:
    """Replaces what is not UTF-8, if the file is but for a few bytes; for codecs.register_error."""

    def __init__(self, path: Path, take_strays: Callable[[int], None]) -> None:
        self._path, self._take = path, take_strays
        self._few = False

    def __call__(self, error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeDecodeError):
            raise error
        if not self._few:
            with open_bytes(self._path) as stream:
                start = stream.read(10 * _SAMPLE)
            if not is_nearly_utf8(start + error.object):
                raise error
            self._few = True
        self._take(error.end - error.start)
        return "\ufffd", error.end


def _utf8_error(path: Path) -> DataError:
    """Say which line of a file is not UTF-8, and how the file becomes so."""
    # Decoding is by blocks, so the position that Python tells is of no use: the lines are looked at again.
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                encoding = _guess(line + lines.read(_SAMPLE))
                unpack = f"zcat '{path}' | " if path.suffix == ".gz" else ""
                source = "" if unpack else f" '{path}'"
                byte, name = f"0x{line[error.start]:02x}", path.stem if unpack else path.name
                return DataError(
                    f"{path}, line {number}: byte {error.start + 1} ({byte}) is not UTF-8. If the file is in "
                    f"{encoding}, convert it: {unpack}iconv -f {encoding} -t UTF-8{source} > 'utf8-{name}'"
                )
    return DataError(f"{path}: its end is not UTF-8: it is torn within a character.")


def _guess(data: bytes) -> str:
    """Return the likeliest encoding as iconv calls it; Latin-1, which takes anything, if there is none."""
    try:
        codec = guess_encoding(data)[0]
    except DataError:
        return "LATIN1"
    return _OF_ICONV.get(codec) or codec.upper().replace("ISO8859", "ISO-8859")


def read_jsonl(path: str | Path) -> Iterator[dict[str, Any]]:
    """Stream the objects of a JSONL file (optionally compressed), skipping blank lines.

    A file whose first line is the beginning of an object or of a list is one that was printed for people: its
    objects, one after another or in a list, are read as well, in memory. Raises :class:`DataError` naming the
    file and the line when a line is not one JSON object, and with the number of records where the file is
    torn.
    """
    count = 0
    try:
        with open_text(path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    record = parse_json(line)
                except json.JSONDecodeError as error:
                    if not count and error.pos >= len(line.rstrip()):  # it goes on in the next line
                        yield from _read_printed(path, line + lines.read(), number)
                        return
                    raise _json_error(path, number - 1, error) from None
                if not isinstance(record, dict):
                    if not count and isinstance(record, list):
                        yield from _read_printed(path, line + lines.read(), number)
                        return
                    raise DataError(
                        f"{path}, line {number}: expected a JSON object, found {type(record).__name__}."
                    )
                yield record
                count += 1
    except TornFileError as error:
        raise error.after_records(count) from None


def _read_printed(path: str | Path, text: str, line: int) -> Iterator[dict[str, Any]]:
    """Yield the records of JSON that spans lines: objects one after another, or what a .json file may hold.

    ``line``: where the text begins in the file.
    """
    position = 0
    while (start := _skip_space(text, position)) < len(text):
        try:
            value, end = _DECODER.raw_decode(text, start)
            _refuse_half_characters(value, text[start:end])
        except (ValueError, RecursionError) as error:
            raise _json_error(path, line - 1, _as_json_error(error, text, start)) from None
        if not position and _skip_space(text, end) == len(text) and not _is_record(value):
            yield from _records_in(value, path)
            return
        if not isinstance(value, dict):
            number = line + text.count("\n", 0, start)
            raise DataError(f"{path}, line {number}: expected a JSON object, found {type(value).__name__}.")
        yield value
        position = end


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


_SAMPLE = 100_000  # bytes
_OF_ICONV = {
    "cp1252": "LATIN1",  # which refuses none of its bytes
    "big5hkscs": "BIG5-HKSCS",
    "euc_jp": "EUC-JP",
    "euc_jis_2004": "EUC-JISX0213",
    "mac-roman": "MACINTOSH",
    "mac-cyrillic": "MAC-CYRILLIC",
    "mac-latin2": "MAC-CENTRALEUROPE",
}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = re.compile(r"[ \t\r\n,]*")
_DECODER = json.JSONDecoder()


def parse_json(text: str) -> Any:
    """Parse JSON as :func:`json.loads` does, and refuse what could not be written again.

    Raises :class:`json.JSONDecodeError`, also for what is nested too deep for Python, and for the half of a
    character (a surrogate without the other), which no file and no tokenizer takes.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _as_json_error(error, text, 0) from None
    _refuse_half_characters(value, text)
    return value


def _as_json_error(error: ValueError | RecursionError, text: str, start: int) -> json.JSONDecodeError:
    """Return what the parser raised as an error of JSON; ``start``: where it began."""
    if isinstance(error, json.JSONDecodeError):
        return error
    if isinstance(error, RecursionError):
        return json.JSONDecodeError("nested too deep", text, start)
    # Python refuses whole numbers of thousands of digits.
    return json.JSONDecodeError(str(error).partition(";")[0], text, start)


def _refuse_half_characters(value: Any, text: str) -> None:
    if escape := _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise json.JSONDecodeError("half of a character, escaped", text, escape.start()) from None


def read_records(path: str | Path) -> Iterator[dict[str, Any]]:
    """Read a file of records in any of the shapes that datasets come in.

    JSONL (also under the name .json), a JSON list of objects, ``{"data": [...]}``, or columns ``{column:
    {row: value}}``.
    """
    if content_name(path).endswith(".json"):
        yield from _read_whole(Path(path))
    else:
        yield from read_jsonl(path)


def _json_error(path: str | Path, lines_before: int, error: json.JSONDecodeError) -> DataError:
    """Say what is wrong with JSON and where; some messages of Python's end in "at" by themselves."""
    start = error.doc[:START].lstrip().encode("utf-8", "replace")
    if detect_file_type(start) is HTML:  # what a server sent instead of the file
        return DataError(f"{path}: expected JSON, but this is a web page: open it in a browser to see which.")
    line, column = error.lineno, error.colno
    if column == 1 and error.pos == len(error.doc):  # behind the line's end, so in the line
        line, column = line - 1, error.pos - error.doc.rfind("\n", 0, error.pos - 1)
    where = f"{error.msg.removesuffix(' at')} at column {column}"
    return DataError(f"{path}, line {lines_before + line}: not valid JSON ({where}).")


def _is_record(value: Any) -> bool:
    """Whether what a file holds is one record, rather than a list, a table of columns or a list of "data"."""
    return isinstance(value, dict) and _has_scalar_rows(value) and not isinstance(value.get("data"), list)


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
        raise _json_error(path, 0, error) from None
    yield from _records_in(data, path)


def _records_in(data: Any, path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the records in the one value that a JSON file holds."""
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
    # numpy's has no number of the system's, and says how many values a full disk took.
    full = error.errno in FULL or (error.errno is None and _NUMPY_FULL.search(str(error)) is not None)
    why = error.strerror or (f"the disk is full, it seems ({error})" if full else str(error))
    why = f"'{folder}' is a file or lies in one" if in_file else why
    advice = "Free some space or choose" if full else "Choose"
    return DataError(f"cannot write {what}'{path}': {why}. {advice} another place.")


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
            filling.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise DataError(
                f"cannot write {what} to '{folder}': {error.strerror or error}. Free some space, or name "
                "another cache with CORAG_CACHE."
            ) from error
