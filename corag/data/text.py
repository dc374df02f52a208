"""Bytes to text: UTF-8, else as a mark or the file itself says, else the likeliest encoding, with a note."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from corag.core.errors import ConfigError, DataError
from corag.data.file_types import HTML, detect_file_type

_SHIFT = re.compile(rb"\x1b\$[@AB]")  # of ISO-2022-JP, whose bytes are all ASCII
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, which begins alike
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FEW = 0.2  # bad bytes per good character beyond ASCII that leave a text UTF-8
# What texts of the last decades come in: the code pages of Windows, a Mac and DOS, and the standards.
_ENCODINGS = (
    "gb18030", "big5hkscs", "cp932", "euc_jis_2004", "cp949", "utf-16-le", "utf-16-be",
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874",
    "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic",
    "mac-latin2", "cp437", "cp850", "cp852", "cp866",
)  # fmt: skip
_USUAL = "cp1252"  # what Windows writes in most countries
_SURE = 0.1  # chardet's confidence above which a guess is not by few letters
_TEXT_PER_ZERO = 1000  # bytes of text for a zero byte at least; with more of these it is binary
_SAMPLE = 1 << 20  # bytes by which an encoding is found


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A text, and how it was read.

    Attributes:
        text: without a byte order mark; U+FFFD for what is no character.
        note: what was guessed, and how many bytes were bad; "" for nothing.
    """

    text: str
    note: str = ""


def find_codec(label: str) -> str:
    """Return the Python codec that a declared encoding stands for, as browsers read it; "" if there is none.

    >>> [find_codec(label) for label in ("gb2312", "Shift_JIS", "latin-1", "klingon")]
    ['gb18030', 'cp932', 'cp1252', '']
    """
    import webencodings

    label = label.strip().lower()
    encoding = webencodings.lookup(label) or webencodings.lookup(label.replace("_", "-"))
    name = encoding.codec_info.name if encoding else {"latin-1": "cp1252"}.get(label, label)
    try:
        codec = codecs.lookup({"gbk": "gb18030"}.get(name, name))  # GB18030 has all of GBK, and more
        b"a".decode(codec.name)  # an encoding of text, not one of Python's others, such as base64
    except (LookupError, ValueError):
        return ""
    return codec.name


def decode(data: bytes, label: str = "") -> DecodedText:
    """Decode a file's bytes. ``label``: the encoding that the file itself names, if it does.

    Raises :class:`DataError` for what is no text.
    """
    codec, note = find_encoding(data, label)
    text = data.decode(codec, "replace").removeprefix("\ufeff")
    bad = text.count("\ufffd") - (data.count("\ufffd".encode()) if codec == "utf-8" else 0)
    return DecodedText(text, "; ".join(filter(None, (note, _bad_note(bad, codec)))))


def find_encoding(data: bytes, label: str = "") -> tuple[str, str]:
    """Return the codec of a text by its first bytes or all of them, and what was guessed, "" for nothing.

    Raises :class:`DataError` for what is no text.
    """
    if codec := next((codec for mark, codec in _MARKS if data.startswith(mark)), ""):
        return codec, ""
    declared = find_codec(label)
    if data.isascii() and _SHIFT.search(data):
        return "iso2022_jp_2", ""
    is_binary = data.count(b"\0") * _TEXT_PER_ZERO > len(data)
    bad, good = _count_bad(data, "utf-8")
    if bad <= _FEW * good and not is_binary:
        return "utf-8", ""
    if declared not in ("", "utf-8") and not _count_bad(data, declared)[0]:
        return declared, ""
    codec = _guess(data)
    if not codec or (is_binary and not codec.startswith("utf-")):
        raise DataError(
            "it is binary data, or text in no encoding that is known: if it is text, save it as UTF-8."
        )
    instead = (
        f"neither UTF-8 nor {label}, which it declares" if declared not in ("", "utf-8") else "not UTF-8"
    )
    return codec, f"{instead}: read as {codec}, a guess"


def _guess(data: bytes) -> str:
    """Return the likeliest codec of a text; of few letters, the one that most files are in, if it may be."""
    import chardet

    guesses = {
        find_codec(each["encoding"]) or each["encoding"]: each["confidence"]
        for each in reversed(
            chardet.detect_all(
                b"\n".join(_high_lines(data)) or data[:_SAMPLE],
                ignore_threshold=True,
                compat_names=False,
                include_encodings=_ENCODINGS,
            )
        )
        if each["encoding"]
    }
    codec = max(guesses, key=lambda each: guesses[each], default="")
    is_usual = guesses.get(_USUAL, 0.0) * 3 >= guesses.get(codec, 0.0) and guesses.get(codec, 1.0) < _SURE
    return _USUAL if is_usual and _USUAL in guesses else codec


def _high_lines(data: bytes) -> list[bytes]:
    """Return lines with more than ASCII, in which all encodings are alike."""
    return [line for line in data[:_SAMPLE].split(b"\n") if not line.isascii() or b"\x1b" in line][:1000]


def _count_bad(data: bytes, codec: str) -> tuple[int, int]:
    """Return how many characters of an encoding are bad, and how many beyond ASCII are good."""
    # What the end of a sample cuts is no fault.
    text = codecs.getincrementaldecoder(codec)("replace").decode(data, final=len(data) < _SAMPLE)
    bad = text.count("\ufffd") - (data.count("\ufffd".encode()) if codec == "utf-8" else 0)
    return bad, len(text) - bad - sum(map(str.isascii, text))


def _bad_note(count: int, codec: str) -> str:
    title = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8"}.get(codec, codec)
    return (
        f"{count:,} byte{'s were' if count > 1 else ' was'} not {title}, read as U+FFFD" if count > 0 else ""
    )


def read_lines(
    stream: BinaryIO, path: str | Path, encoding: str = "", note: Callable[[str], None] = lambda _: None
) -> Iterator[str]:
    """Yield the lines of an open file as text, with their ends.

    Args:
        stream: of the file's content, read once.
        path: the file, for messages.
        encoding: of the file; "" to find it out by the first megabyte.
        note: takes a sentence, without its end, on what was guessed or bad.

    Raises:
        DataError: for a file that is no text.
        ConfigError: for an ``encoding`` that does not exist.
    """
    head = stream.read(_SAMPLE)
    file_type = detect_file_type(head)
    if file_type and file_type is not HTML:  # as a table or as JSON a web page is refused anyway
        raise DataError(f"{path}: expected text, but this is {file_type}: {file_type.advice}.")
    if encoding and not find_codec(encoding):
        raise ConfigError(f"encoding is '{encoding}', which is none: name one such as utf-8 or cp1252.")
    try:
        codec, guess = (find_codec(encoding), "") if encoding else find_encoding(head)
    except DataError as error:
        raise DataError(f"{path}: {str(error).rstrip('.')}, or name its encoding with encoding.") from None
    if guess:
        note(f"{guess} (name another with encoding)")
    if codec.startswith(("utf-16", "utf-32")):  # whose line ends are no single bytes
        yield from io.StringIO((head + stream.read()).decode(codec, "replace"), newline="\n")
        return
    bad = 0
    for line in _byte_lines(head, stream):
        try:
            yield line.decode(codec)
        except UnicodeDecodeError:
            text = line.decode(codec, "replace")
            bad += text.count("\ufffd")
            yield text
        codec = "utf-8" if codec == "utf-8-sig" else codec
    if bad:
        note(_bad_note(bad, codec))


def _byte_lines(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    *whole, last = head.split(b"\n")
    yield from (line + b"\n" for line in whole)
    if last := last + stream.readline():
        yield last
    yield from stream
