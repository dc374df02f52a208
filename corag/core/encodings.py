"""Bytes to text: what encoding a file is in, what of that is a guess, and how many bytes were bad.

UTF-8 is tried first: what is valid UTF-8 hardly ever is anything else. Then comes what a file declares, by
the names that browsers go by (WHATWG's Encoding Standard), and at last a guess by chardet, which is said.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass

from corag.core.errors import DataError

# The longer marks first: that of UTF-32 begins as that of UTF-16 does.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Encodings with several bytes per character. Bytes in another encoding are seldom valid in them for long.
_WIDE = ("gb18030", "big5hkscs", "cp932", "euc_jis_2004", "cp949")
# What texts of the last decades come in: the code pages of Windows, of a Mac, of DOS, and the standards.
_NARROW = (
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874",
    "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic",
    "mac-latin2", "cp437", "cp850", "cp852", "cp866",
)  # fmt: skip
_USUAL_CODEC = "cp1252"  # of bytes that tell nothing: it is what Windows writes in most countries
_TITLES = {
    "cp1252": "cp1252 (Latin-1)", "gb18030": "GB18030 (GBK)", "big5hkscs": "Big5", "cp950": "Big5",
    "cp932": "cp932 (Shift-JIS)", "euc_jis_2004": "EUC-JP", "euc_jp": "EUC-JP", "cp949": "cp949 (EUC-KR)",
}  # fmt: skip
# Their bytes are all ASCII, so they are valid UTF-8.
_SEVEN_BITS = frozenset(("hz", "iso2022_kr", "iso2022_jp"))
# What Python's cp932 makes of bytes that are in none of its characters.
_STRAY_IN_CP932 = {ord(each): 0xDCFF for each in "\x80\xa0\uf8f0\uf8f1\uf8f2\uf8f3"}
_STRAY = re.compile("[\udc80-\udcff]")
# Codecs of Python that are no encodings of files.
_NO_FILES = frozenset(("unicode_escape", "raw_unicode_escape", "punycode", "idna", "undefined", "utf_7"))

_FEW_BAD = 0.2  # bad bytes per good character beyond ASCII that leave a text UTF-8
_FEW_BAD_WIDE = 0.02  # the same for the other encodings with several bytes per character
_SURE_WIDE = 0.25  # chardet's confidence; right ones begin at 0.26 (10 characters), false ones end at 0.2
_SURE_CLEAN = 0.5
_NEAR = 0.5  # of the best confidence: what the usual encoding needs to be preferred
_SURE_LETTERS = 12  # letters beyond ASCII, from which on a guess is nearly always right
_SAMPLE = 100_000  # bytes
_SURROUNDINGS = re.compile(rb"[^\n]{0,30}[\x80-\xff][^\n]{0,30}")
_WORD_BYTES = 20_000  # bytes in which words are looked at
_FEW_ODD = 0.1
_WORD = 4  # letters: fewer say nothing of another alphabet, and may be signs such as those of degrees
_RARE = {
    "mac-roman": 0.9,
    "cp850": 0.9,
    "cp866": 0.9,
    "cp437": 0.8,
    "cp852": 0.7,
    "mac-latin2": 0.7,
}
_OPENING = "‚„¿¡"
_BARE_ACCENTS = "ˆ˜¨¸¯¦¤"
_ACCENT_RUN = re.compile("[\u00c0-\u024f]{5,}")  # words of another alphabet
_WITHIN_WORDS = "’‘'`´·-–—\u00ad\u2026"
_LATIN_END = "\u0250"
_DOUBT = ", a guess from few letters"
_VARIANTS = {"big5hkscs": ("big5hkscs", "cp950"), "euc_jis_2004": ("euc_jp", "euc_jis_2004")}
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")  # ESC, which terminals are told with, is not
_ESCAPE_SHIFTS = re.compile(rb"\x1b(?:\$[@AB]|\$\([CDOPQ]|\([IJ])")  # shifts of ISO-2022-JP
_ZERO = re.compile(rb"\0+")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A text, and how it was read.

    Attributes:
        text: without a byte order mark; U+FFFD for what is no character.
        encoding: its name in Python.
        note: what was guessed, and how many bytes were bad; "" for nothing.
    """

    text: str
    encoding: str
    note: str = ""


def find_mark(start: bytes) -> str:
    """Return the encoding that a byte order mark announces, "utf-16" or "utf-32"; "" for UTF-8 or no mark."""
    encoding = next((encoding for mark, encoding in _MARKS if start.startswith(mark)), "")
    return "" if encoding == "utf-8" else encoding


def find_codec(label: str) -> str:
    """Return the Python codec that a declared encoding stands for, as browsers read it; "" if there is none.

    >>> [find_codec(label) for label in ("gb2312", "Shift_JIS", "latin-1", "ks_c_5601-1987", "klingon")]
    ['gb18030', 'cp932', 'cp1252', 'cp949', '']
    """
    import webencodings

    label = label.strip().lower()
    encoding = webencodings.lookup(label) or webencodings.lookup(label.replace("_", "-"))
    name = encoding.name if encoding else label
    if name in ("gbk", "gb18030"):
        return "gb18030"
    if name in ("latin-1", "x-user-defined"):
        return "cp1252"
    if name == "replacement":  # browsers show nothing, lest a page be used for an attack
        name = label
    name = webencodings.PYTHON_NAMES.get(name, name)
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        return ""
    python_name = codec.name.replace("-", "_")
    # Of the standard library under a private name: codecs such as base64 are no encodings of text.
    is_text = getattr(codec, "_is_text_encoding", True)
    if not is_text or python_name in _NO_FILES or python_name.startswith(("utf_16", "utf_32")):
        return ""  # the declaration could not have been read
    return codec.name


def decode(data: bytes, label: str = "") -> DecodedText:
    """Decode a file's bytes. ``label``: the encoding that the file itself names, if it does.

    Raises :class:`DataError` for what is no text, or in no encoding that can be told.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_marked(data, encoding)
    if b"\0" in data:
        return _decode_zeros(data, label)
    if _ESCAPE_SHIFTS.search(data) and (text := _decode_strictly(data, "iso2022_jp_2", "iso2022_jp_2004")):
        return text
    codec = find_codec(label) if label else ""
    if codec in _SEVEN_BITS and data.isascii() and (text := _decode_strictly(data, codec)):
        return text
    if text := _decode_strictly(data, "utf-8"):
        return text
    return (
        _decode_with_strays(data)
        or (_decode_declared(data, codec, label) if codec not in ("", "utf-8") else None)
        or _decode_guessed(data, label)
    )


def _decode_strictly(data: bytes, *encodings: str) -> DecodedText | None:
    for encoding in encodings:
        try:
            return DecodedText(data.decode(encoding), encoding)
        except UnicodeDecodeError:
            continue
    return None


def _count_bad(data: bytes, encoding: str) -> tuple[int, int]:
    """Return how many bytes are bad in an encoding, and how many characters beyond ASCII are good."""
    text = _escape_bad(data, encoding)
    bad = len(_STRAY.findall(text))
    return bad, len(text) - bad - sum(map(str.isascii, text))


def _escape_bad(data: bytes, encoding: str) -> str:
    """Decode bytes; those that are bad become halves of surrogate pairs, as in PEP 383."""
    text = data.decode(encoding, "surrogateescape")
    return text.translate(_STRAY_IN_CP932) if encoding == "cp932" else text


def _decode_marking_bad(data: bytes, encoding: str) -> str:
    """Decode bytes; what is bad becomes U+FFFD."""
    text = data.decode(encoding, "replace")
    return _STRAY.sub("\ufffd", text.translate(_STRAY_IN_CP932)) if encoding == "cp932" else text


def _bad_bytes_note(count: int, title: str) -> str:
    return f"{count:,} byte was not {title}" if count == 1 else f"{count:,} bytes were not {title}"


def _decode_marked(data: bytes, encoding: str) -> DecodedText:
    try:
        return DecodedText(data.decode(encoding).removeprefix("\ufeff"), encoding)
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace").removeprefix("\ufeff")
    bad = text.count("\ufffd")
    if bad > _FEW_BAD_WIDE * len(text):
        raise DataError(f"its first bytes announce {encoding.upper()}, but it is not: save it as UTF-8.")
    return DecodedText(text, encoding, f"{bad:,} character(s) were not {encoding.upper()}")


def _decode_zeros(data: bytes, label: str) -> DecodedText:
    """Decode UTF-16 or UTF-32 without a mark, if that is certain, and text with a few zero bytes in it."""
    for encoding in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        text = _decode_strictly(data, encoding)
        if text and _is_certain(text.text):
            return DecodedText(text.text, encoding, f"read as {encoding[:6].upper()}, without its mark")
    zeros = data.count(b"\0")
    if zeros * 1000 < len(data):
        rest = decode(_ZERO.sub(b"", data), label)
        notes = [f"{zeros:,} zero byte(s) left out", *([rest.note] if rest.note else [])]
        if not _CONTROL.search(rest.text):
            return DecodedText(rest.text, rest.encoding, "; ".join(notes))
    raise DataError("it is binary data or UTF-16 without a mark, not text: save it as UTF-8.")


def _is_certain(text: str) -> bool:
    """Whether a text can be nothing else: no odd character, and letters and spaces as in one language.

    The bytes of a text in the wrong order, or by two where they are one, give characters of all scripts.
    """
    if _CONTROL.search(text) or not all(map(_is_assigned, set(text))):
        return False
    blocks = [ord(character) >> 8 for character in text if not character.isspace()]
    spaces = sum(character in " \n,.，。、" for character in text)
    # Of ideographs there are eighty blocks of 256; no alphabet fills more than three.
    alphabets = {block for block in blocks if not 0x2E <= block <= 0xD7 and block != 0xFF}
    return len(blocks) >= 4 and len(alphabets) <= 4 and spaces * 100 >= len(text)


def _is_assigned(character: str) -> bool:
    return unicodedata.category(character) not in ("Cn", "Co", "Cs")


def _decode_with_strays(data: bytes) -> DecodedText | None:
    """Decode UTF-8 with a few bytes that are not; None if these are too many among its other characters."""
    bad, good = _count_bad(data, "utf-8")
    torn_bytes = 0
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            # The first mistake is the end: the file is cut within a character.
            torn_bytes = len(data) - error.start
    if bad <= _FEW_BAD * good or torn_bytes > 1:
        return DecodedText(data.decode("utf-8", "replace"), "utf-8", _bad_bytes_note(bad, "UTF-8"))
    return None


def _decode_declared(data: bytes, codec: str, label: str) -> DecodedText | None:
    """Decode as declared, as browsers do; None if so much is bad then that the declaration is wrong."""
    bad, good = _count_bad(data, codec)
    if codec in _WIDE:
        believable = not bad or (
            bad <= _FEW_BAD_WIDE * good
            and _guess_wide(_high_lines(data)) in ("", *_VARIANTS.get(codec, (codec,)))
        )
    else:
        believable = _reads_well(_words(data), codec)
    if not believable:
        return None
    note = _bad_bytes_note(bad, label) if bad else ""
    return DecodedText(_decode_marking_bad(data, codec), codec, note)


def _decode_guessed(data: bytes, label: str) -> DecodedText:
    is_other_label = label and label.strip().lower() not in ("utf-8", "utf8")
    instead = f"neither UTF-8 nor {label}, which it declares" if is_other_label else "not UTF-8"
    encoding, doubt = guess_encoding(data)
    text = _decode_marking_bad(data, encoding)
    bad = _count_bad(data, encoding)[0]
    notes = [f"{instead}: read as {encoding_title(encoding)}{doubt}"]
    if bad:
        notes.append(_bad_bytes_note(bad, "that"))
    return DecodedText(text, encoding, "; ".join(notes))


def encoding_title(codec: str) -> str:
    """Return what people call an encoding."""
    return _TITLES.get(codec, codec)


def is_nearly_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8 but for a few: with other characters beyond ASCII, and many more of them."""
    bad, good = _count_bad(data, "utf-8")
    return good > 0 and bad <= _FEW_BAD * good


def guess_encoding(data: bytes) -> tuple[str, str]:
    """Return the codec that bytes which are not UTF-8 are likeliest in, and words of doubt, "" for little.

    Raises :class:`DataError` if they are text in none.
    """
    lines = _high_lines(data)
    if codec := _guess_wide(lines):
        return codec, ""
    words = _words(lines)
    guesses = sorted(
        ((codec, sure * _RARE.get(codec, 1.0)) for codec, sure in _guesses(words) if codec not in _WIDE),
        key=lambda guess: -guess[1],
    )
    codec, sure = next((guess for guess in guesses if _reads_well(words, guess[0])), ("", 0.0))
    if not codec:
        raise DataError("its bytes are text in no encoding that is known: if it is text, save it as UTF-8.")
    text = words.decode(codec, "replace")
    letters = [character for character in text if character.isalpha() and not character.isascii()]
    latin = max(letters, default="") < _LATIN_END
    near = dict(guesses).get(_USUAL_CODEC, -1.0) >= _NEAR * sure
    if (near if latin and letters else len(letters) < _WORD) and _reads_well(words, _USUAL_CODEC):
        codec = _USUAL_CODEC
    return codec, "" if len(letters) >= _SURE_LETTERS else _DOUBT


def _high_lines(data: bytes) -> bytes:
    """Return lines with more than ASCII."""
    return b"\n".join(line for line in data[: 10 * _SAMPLE].split(b"\n") if not line.isascii())[:_SAMPLE]


def _words(data: bytes) -> bytes:
    """Return the surroundings of what is beyond ASCII: it would drown in letters that all encodings share."""
    return b"\n".join(_SURROUNDINGS.findall(data[: 10 * _SAMPLE]))[:_SAMPLE]


def _guesses(sample: bytes) -> list[tuple[str, float]]:
    """Return codecs that chardet takes a sample for, the likeliest first, with its confidence in each."""
    import chardet

    return [
        (find_codec(guess["encoding"]), guess["confidence"])
        for guess in chardet.detect_all(
            sample, ignore_threshold=True, compat_names=False, include_encodings=[*_WIDE, *_NARROW]
        )
        if guess["encoding"]
    ]


def _guess_wide(sample: bytes) -> str:
    """Return the codec with several bytes per character that a sample is in, "" if it is in none."""
    codec, sure = next(iter(_guesses(sample)), ("", 0.0))
    if codec in _WIDE and sure >= _SURE_WIDE:
        return min(_VARIANTS.get(codec, (codec,)), key=lambda each: _count_bad(sample, each)[0])
    # For chardet a single bad byte rules them out. So each is tried without the bytes that are bad in it.
    best, best_sure = "", _SURE_CLEAN
    for wide in _WIDE:
        bad, good = _count_bad(sample, wide)
        if 0 < bad <= _FEW_BAD_WIDE * good:
            clean_sample = _STRAY.sub("", _escape_bad(sample, wide)).encode(wide)
            codec, sure = next(iter(_guesses(clean_sample)), ("", 0.0))
            if codec == wide and sure >= best_sure:
                best, best_sure = codec, sure
    return best


def _reads_well(sample: bytes, codec: str) -> bool:
    """Whether what is beyond ASCII stands where writers put it, once a sample is decoded.

    In the wrong encoding letters become signs within words, or capitals behind small letters.
    """
    text = sample[:_WORD_BYTES].decode(codec, "replace")
    odd = sum(map(len, _ACCENT_RUN.findall(text)))
    total = 0
    for before, character, after in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        if not character.isascii():
            total += 1
            odd += _is_odd(before, character, after)
    return odd <= _FEW_ODD * total


def _is_odd(before: str, character: str, after: str) -> bool:
    kind = unicodedata.category(character)
    if kind in ("Cc", "Cn", "Co") or character == "\ufffd":
        return True
    if character in _OPENING and before.isalpha():
        return True
    if character in _BARE_ACCENTS and (before.isalpha() or after.isalpha()):
        return True
    if kind[0] not in "LM":
        between = before.isalpha() and after.isalpha()
        return (between and character not in _WITHIN_WORDS) or (kind == "Sc" and after.isalpha())
    if kind == "Lu" and (before.islower() or (before.isupper() and after.islower())):
        return True
    # No word is written in two scripts.
    return character >= _LATIN_END and any(each.isascii() and each.isalpha() for each in (before, after))
