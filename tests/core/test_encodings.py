"""Files in every encoding are read as what they are, and what was guessed or bad in them is said."""

import codecs
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.core.encodings import decode, find_codec
from corag.core.errors import DataError
from corag.core.files import open_text, read_jsonl
from tests.core.encoded_texts import ENCODINGS, TEXTS

ALL = [(language, encoding) for language, encodings in ENCODINGS.items() for encoding in encodings]
WIDE = [(language, encoding) for language, encoding in ALL if language in tuple(TEXTS)[:4]]


@pytest.mark.parametrize(("language", "encoding"), ALL)
def test_texts_in_the_encodings_of_their_languages(language: str, encoding: str) -> None:
    text = TEXTS[language]
    sentence = text[: min((text.find(end, 60) + 1 for end in ".。" if text.find(end, 60) > 0), default=60)]
    for name, part in (("short", sentence), ("long", text), ("lines", f"{text}\n\n{text}\n" * 20)):
        decoded = decode(part.encode(encoding))
        if name == "short" and decoded.note.endswith("a guess from few letters"):
            continue  # said, so it may be wrong; most are right
        assert decoded.text == part, (name, decoded.encoding)
        assert decoded.note == "" or decoded.note.startswith("not UTF-8: read as "), name
        assert bool(decoded.note) == (encoding != "iso2022_jp")


def test_most_short_texts_are_right_and_those_that_are_not_are_doubted() -> None:
    right = wrong = 0
    for language, encoding in ALL:
        for length in (10, 20, 40, 80):
            part = TEXTS[language][:length]
            decoded = decode(part.encode(encoding))
            right += decoded.text == part
            wrong += decoded.text != part
            assert decoded.text == part or decoded.note.endswith("a guess from few letters"), part
    assert wrong * 20 < right


@pytest.mark.parametrize(
    ("bad", "note"), [(b"\xe9", "1 byte was not UTF-8"), (b"\x80\xff", "2 bytes were not UTF-8")]
)
def test_stray_bytes_in_utf8_are_marked_and_counted(bad: bytes, note: str) -> None:
    for language in ("German", "Chinese", "Russian"):
        text = TEXTS[language]
        middle = len(text) // 2
        before, after = text[:middle].encode(), text[middle:].encode()
        decoded = decode(before + bad + b" " + after)
        assert decoded.note == note and decoded.text.replace("\ufffd", "").replace(" ", "") == text.replace(
            " ", ""
        )
        assert "\ufffd" in decoded.text
    torn = decode(b"It is over.\xe2\x80")
    assert (torn.text, torn.note) == ("It is over.\ufffd", "2 bytes were not UTF-8")


@pytest.mark.parametrize(("language", "encoding"), [pair for pair in WIDE if pair[1] != "iso2022_jp"])
def test_a_stray_byte_does_not_hide_the_other_encodings(language: str, encoding: str) -> None:
    text = TEXTS[language]
    for place in (0, len(text) // 2, len(text)):
        data = text[:place].encode(encoding) + b"\xff\n" + text[place:].encode(encoding)
        decoded = decode(data)
        assert sum(each in decoded.text for each in text.split("。")) > text.count("。") - 2, decoded.encoding
        assert decoded.note.endswith("1 byte was not that")


@pytest.mark.parametrize(
    ("label", "text", "encoding"),
    [
        ("gb2312", "朱镕基说：“龘”字很少见。", "gbk"),  # 镕 and 龘 are not in GB 2312
        ("Shift_JIS", "①髙橋さんの㈱", "cp932"),
        ("x-sjis", "①髙橋さんの㈱", "cp932"),
        ("ks_c_5601-1987", "똠방각하와 펲시콜라", "cp949"),
        ("euc-kr", "똠방각하와 펲시콜라", "cp949"),
        ("big5", "碁盤、裏面與廚房", "cp950"),
        ("latin-1", "“Köln” – 5 €", "cp1252"),
        ("iso-8859-1", "“Köln” – 5 €", "cp1252"),
        ("ascii", "“Köln”", "cp1252"),
        ("ISO-8859-9", "İstanbul’da ağaç", "cp1254"),
        ("tis-620", "ประเทศไทย…", "cp874"),
        ("koi", "Привет, мир", "koi8-r"),
        ("x-mac-roman", "Köln", "mac-roman"),
        ("cp437", "Köln", "cp437"),
        ("hz-gb-2312", "你好", "hz"),
    ],
)
def test_declared_names_are_those_of_browsers(label: str, text: str, encoding: str) -> None:
    decoded = decode(text.encode(encoding), label)
    assert (decoded.text, decoded.note) == (text, "")


def test_a_declaration_that_is_wrong_is_not_believed() -> None:
    for declared in ("utf-8", "klingon", "big5", "iso-8859-1", "windows-1252", "unicode_escape", "utf-16"):
        decoded = decode(TEXTS["Chinese"].encode("gbk"), declared)
        assert decoded.text == TEXTS["Chinese"], declared
        instead = "not UTF-8" if declared == "utf-8" else f"neither UTF-8 nor {declared}, which it declares"
        assert decoded.note == f"{instead}: read as GB18030 (GBK)"
    assert decode("Köln".encode(), "iso-8859-1").text == "Köln", "UTF-8 is tried before"
    bad = TEXTS["Japanese"].encode("cp932") + b"\xff"
    assert decode(bad, "Shift_JIS").note == "1 byte was not Shift_JIS"
    assert find_codec("rot13") == find_codec("utf-16") == find_codec("no such") == ""


def test_utf16_without_a_mark_is_read_if_it_is_certain() -> None:
    for language in (
        "German",
        "Russian",
        "Chinese",
        "Japanese",
        "Korean",
        "Arabic",
        "Hebrew",
        "Thai",
        "Greek",
    ):
        text = TEXTS[language]
        text = text if "\n" in text else f"{text}\nA 1.\n"
        for encoding in ("utf-16-le", "utf-16-be", "utf-32-le"):
            decoded = decode(text.encode(encoding))
            assert (
                decoded.text == text and decoded.note == f"read as {encoding[:6].upper()}, without its mark"
            )
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        assert decode(mark + "Fluß".encode(encoding)).text == "Fluß"
        torn = decode(mark + TEXTS["German"].encode(encoding) + b"x")
        assert torn.note == "1 character(s) were not UTF-16" and torn.text.startswith(TEXTS["German"])
    random_bytes = random.Random(3).randbytes(3000)
    for data in (
        random_bytes,
        b"\0\1\2\3" * 9,
        b"\x89PNG\0\0\0\rIHDR",
        b"a\0b",
        random_bytes.replace(b"\0", b""),
    ):
        with pytest.raises(DataError, match=r"binary data|no encoding that is known"):
            decode(data)


def test_a_zero_byte_in_a_long_text_is_left_out_and_counted() -> None:
    text = "A line of a log.\n" * 200
    decoded = decode(text.encode() + b"\0" + text.encode())
    assert (decoded.text, decoded.note) == (text * 2, "1 zero byte(s) left out")


def test_what_is_no_utf8_in_records_is_named_with_its_likely_encoding(tmp_path) -> None:
    file = tmp_path / "a.jsonl"
    for language, encoding, name in (
        ("Chinese", "gbk", "GB18030"), ("Japanese", "cp932", "CP932"), ("Korean", "cp949", "CP949"),
        ("Russian", "cp1251", "CP1251"), ("Russian", "koi8_r", "KOI8-R"),
        ("Polish", "iso8859_2", "ISO-8859-2"),
        ("French", "cp1252", "LATIN1"), ("Spanish", "mac_roman", "MACINTOSH"),
    ):  # fmt: skip
        file.write_bytes(f'{{"a": 1}}\n{{"a": "{TEXTS[language]}"}}\n'.encode(encoding))
        with pytest.raises(DataError, match=rf"line 2: byte \d+ .* If the file is in {name}, convert"):
            list(read_jsonl(file))
    with open_text(tmp_path / "a.jsonl") as stream, pytest.raises(DataError, match="iconv -f MACINTOSH"):
        stream.read()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_refused(data: bytes) -> None:
    try:
        decoded = decode(data)
    except DataError:
        return
    assert isinstance(decoded.text, str)
    if "\ufffd" in decoded.text and "\ufffd".encode() not in data:
        assert decoded.note


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_utf8_is_never_taken_for_anything_else(text: str) -> None:
    data = text.encode("utf-8", "ignore")
    if b"\0" in data or b"\x1b" in data or data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return
    decoded = decode(data, "gbk")
    assert (decoded.text, decoded.encoding, decoded.note) == (data.decode(), "utf-8", "")
