"""Files in every encoding are read as what they are, and what was guessed or bad in them is a note."""

from __future__ import annotations

import codecs
import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.core.errors import ConfigError, DataError
from corag.data.text import decode, find_codec, read_lines
from tests.messages import raises_message
from tests.records.encoded_texts import ENCODINGS, TEXTS

ALL = [(language, encoding) for language, encodings in ENCODINGS.items() for encoding in encodings]


def test_texts_in_the_encodings_of_their_languages() -> None:
    wrong = []
    for language, encoding in ALL:
        text = TEXTS[language]
        for part in (text[:80], text, f"{text}\n\n{text}\n" * 20):
            decoded = decode(part.encode(encoding))
            assert decoded.note.endswith("a guess") or encoding == "iso2022_jp"
            if decoded.text != part:
                wrong.append((language, encoding, len(part)))
    # The old code pages of DOS differ in a few signs, which no text of a few lines tells.
    assert {encoding for _, encoding, _ in wrong} <= {"cp850"} and len(wrong) <= 3, wrong


@pytest.mark.parametrize("language", ["German", "Chinese", "Russian"])
@pytest.mark.parametrize(("bad", "note"), [(b"\xe9", "1 byte was"), (b"\x80\xff", "2 bytes were")])
def test_stray_bytes_in_utf8_are_marked_and_counted(language: str, bad: bytes, note: str) -> None:
    text = TEXTS[language]
    middle = len(text) // 2
    decoded = decode(text[:middle].encode() + bad + b" " + text[middle:].encode())
    assert decoded.note == f"{note} not UTF-8, read as U+FFFD"
    assert decoded.text.replace("\ufffd", "").replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("label", "text", "encoding"),
    [
        ("gb2312", "朱镕基说：“龘”字很少见。", "gbk"),  # 镕 and 龘 are not in GB 2312
        ("Shift_JIS", "髙橋さんの㈱", "cp932"),
        ("euc-kr", "똠방각하와 펲시콜라", "cp949"),
        ("big5", "碁盤、裏面與廚房", "big5hkscs"),
        ("latin-1", "“Köln” – 5 €", "cp1252"),
        ("iso-8859-1", "“Köln” – 5 €", "cp1252"),
        ("ISO-8859-9", "İstanbul’da ağaç", "cp1254"),
        ("tis-620", "ประเทศไทย…", "cp874"),
        ("koi", "Привет, мир", "koi8-r"),
        ("cp437", "Köln", "cp437"),
    ],
)
def test_declared_names_are_those_of_browsers(label: str, text: str, encoding: str) -> None:
    decoded = decode(text.encode(encoding), label)
    assert (decoded.text, decoded.note) == (text, "")


def test_a_declaration_that_is_wrong_is_not_believed() -> None:
    for declared in ("utf-8", "klingon", "big5"):
        decoded = decode(TEXTS["Chinese"].encode("gbk"), declared)
        assert decoded.text == TEXTS["Chinese"] and "read as gb18030" in decoded.note
    assert decode("Köln".encode(), "iso-8859-1").text == "Köln", "UTF-8 is tried before"
    assert find_codec("rot13") == find_codec("no such") == ""


def test_binary_data_is_refused_and_a_mark_is_read() -> None:
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        assert decode(mark + "Fluß".encode(encoding)).text == "Fluß"
    noise = random.Random(3).randbytes(3000)
    for data in (noise, b"\0\1\2\3" * 9, b"\x89PNG\0\0\0\rIHDR", b"a\0b"):
        with pytest.raises(DataError, match="binary data"):
            decode(data)


def lines(data: bytes, encoding: str = "") -> tuple[list[str], list[str]]:
    notes: list[str] = []
    return list(read_lines(io.BytesIO(data), "f", encoding, notes.append)), notes


def test_lines_are_those_of_the_whole_text_wherever_the_first_megabyte_ends() -> None:
    text = "".join(f"Zeile {n} über Köln\n" for n in range(90_000))
    assert len(text) > 1 << 20
    for end in ("", "last"):
        read, notes = lines((text + end).encode())
        assert "".join(read) == text + end and read == (text + end).splitlines(keepends=True) and not notes
    read, notes = lines((text + "Äpf\n").encode().replace(b"80000 \xc3\xbc", b"80000 \xfc"))
    assert len(read) == 90_001 and "\ufffd" in read[80_000]
    assert notes == ["1 byte was not UTF-8, read as U+FFFD"]
    for encoding in ("utf-16", "utf-8-sig"):
        assert lines("a\nü".encode(encoding)) == (["a\n", "ü"], [])


def test_an_encoding_that_is_named_counts() -> None:
    assert lines("é".encode("cp1252"), "latin-1") == (["é"], [])
    with raises_message(ConfigError):
        lines(b"x", "klingon")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_utf8_is_never_taken_for_anything_else(text: str) -> None:
    data = text.encode("utf-8", "ignore")
    if b"\0" in data or b"\x1b" in data or data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return
    assert decode(data, "gbk") == decode(data) and decode(data).text == data.decode()
