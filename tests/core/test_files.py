"""Records in every shape are read; folders of the cache are there whole or not at all."""

import bz2
import errno
import gzip
import json
import lzma
import re
import sys

import pytest
import zstandard

from corag.core.errors import ConfigError, DataError
from corag.core.files import build_folder, build_once, read_jsonl, read_records, read_text
from tests.messages import raises_message


def test_a_folder_takes_its_name_when_it_is_full(tmp_path):
    folder = tmp_path / "cache/model"
    with build_once(folder, "the model") as filling:
        (filling / "weights").write_text("first")
        assert not folder.exists()
    (tmp_path / "usual").mkdir()
    assert folder.stat().st_mode == (tmp_path / "usual").stat().st_mode, (
        "others who share the cache may read it"
    )
    with build_once(folder, "the model") as filling:  # by another process, which was slower
        (filling / "weights").write_text("second")
    assert (folder / "weights").read_text() == "first"
    assert list(folder.parent.iterdir()) == [folder]


def test_what_cannot_be_made_leaves_nothing(tmp_path):
    with (
        raises_message(DataError),
        build_once(tmp_path / "cache/model", "the model"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with (
        raises_message(ConfigError),
        build_once(tmp_path / "cache/model", "the model"),
    ):
        raise ConfigError("no such adapter.")
    assert list((tmp_path / "cache").iterdir()) == []
    (tmp_path / "file").touch()
    with (
        raises_message(DataError),
        build_once(tmp_path / "file/model", "the model"),
    ):
        pass


def test_records_in_every_shape(tmp_path):
    rows = [{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]
    texts = {
        "lines.jsonl": '{"a": 1, "b": {"c": 2}}\n\n{"a": 2, "b": {"c": 3}}\n',
        "lines.json": '{"a": 1, "b": {"c": 2}}\n{"a": 2, "b": {"c": 3}}\n',
        "list.json": '[{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]',
        "data.json": '{"data": [{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]}',
        "columns.json": '{"a": {"0": 1, "1": 2}, "b": {"0": {"c": 2}, "1": {"c": 3}}}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert list(read_records(tmp_path / name)) == rows, name
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": \n')
    with raises_message(DataError):
        list(read_jsonl(tmp_path / "broken.jsonl"))
    with raises_message(DataError):
        list(read_jsonl(tmp_path / "missing.jsonl"))


def test_json_is_told_off_in_words(tmp_path):
    file = tmp_path / "torn.jsonl"
    for text, said in (
        ('{"a": "x', "Unterminated string starting at column 7"),
        ('{"a": "x\ty"}', "Invalid control character at column 9"),
        ('{"a" 1}', "Expecting ':' delimiter at column 6"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=rf"torn\.jsonl, line 1: not valid JSON \({said}\)"):
            list(read_jsonl(file))


def test_text_in_utf16_is_read_by_its_mark_and_a_torn_character_is_named(tmp_path):
    file = tmp_path / "a.jsonl"
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        file.write_bytes('{"a": "Fluß"}\n{"a": 2}\n'.encode(encoding))
        assert list(read_jsonl(file)) == [{"a": "Fluß"}, {"a": 2}], encoding
    file.write_bytes(b'{"a": 1}\n{"a": "\xc3')
    with raises_message(DataError):
        list(read_jsonl(file))
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"a": "caf\xe9"}'))
    with raises_message(DataError):
        list(read_jsonl(packed))


PACKERS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
LINES = "".join(json.dumps({"id": n, "text": f"Passage {n * 7919} über {n}."}) + "\n" for n in range(5000))


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "gz", "jsonl.zst"])
def test_what_packs_a_file_is_seen_by_its_first_bytes(tmp_path, name, ending):
    file = tmp_path / f"a.{ending}"
    file.write_bytes(PACKERS[name](LINES.encode()))
    assert [record["id"] for record in read_records(file)] == list(range(5000))
    file.write_text(LINES)
    assert len(list(read_records(file))) == 5000, "a plain file under the name of a compressed one"


@pytest.mark.parametrize("name", PACKERS)
def test_frames_one_after_another_are_one_file(tmp_path, name):
    file = tmp_path / "a.jsonl"
    half = len(LINES) // 2
    file.write_bytes(b"".join(PACKERS[name](part.encode()) for part in (LINES[:half], LINES[half:])))
    assert len(list(read_jsonl(file))) == 5000


@pytest.mark.parametrize("name", PACKERS)
def test_a_torn_file_is_named_with_what_was_read_of_it(tmp_path, name):
    file = tmp_path / "a.jsonl.gz"
    whole = PACKERS[name](LINES.encode())
    for size in (len(whole) // 2, len(whole) - 3):
        file.write_bytes(whole[:size])
        records = []
        with pytest.raises(
            DataError, match=rf"a\.jsonl\.gz: its {name} data break off after .* records?: "
        ) as error:
            for record in read_jsonl(file):
                records.append(record)
        assert f"after {len(records):,} record" in str(error.value)
    with pytest.raises(DataError, match=r"after \S+ lines?: it was not copied"):
        read_text(file)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    damaged[len(whole) // 2 + 1] ^= 0xFF
    file.write_bytes(damaged)
    with pytest.raises(DataError, match=r"a\.jsonl\.gz"):
        list(read_jsonl(file))


def test_without_its_package_zstd_is_a_sentence(tmp_path, monkeypatch):
    file = tmp_path / "a.jsonl.zst"
    file.write_bytes(PACKERS["zstd"](LINES.encode()))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"a\.jsonl\.zst', compressed with zstd, needs zstandard"):
        list(read_jsonl(file))


def test_json_printed_for_people_is_read_under_the_name_of_lines(tmp_path):
    rows = [{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]
    printed = [json.dumps(row, indent=2) for row in rows]
    texts = {
        "a list": json.dumps(rows, indent=2),
        "a list in one line": json.dumps(rows),
        "a list with a record per line": f"[{json.dumps(rows[0])},\n{json.dumps(rows[1])}]",
        "objects": "\n".join(printed),
        "objects after blank lines": "\n\n" + "\n\n".join(printed),
        "objects with commas": ",\n".join(printed),
        "data": json.dumps({"data": rows}, indent=1),
    }
    file = tmp_path / "a.jsonl"
    for what, text in texts.items():
        file.write_text(text)
        assert list(read_jsonl(file)) == rows, what
    file.write_text(printed[0])
    assert list(read_jsonl(file)) == rows[:1]
    for what, text, message in (
        (
            "broken",
            printed[0] + '\n{\n  "a": oops\n}',
            r"line 8: not valid JSON \(Expecting value at column 8\)",
        ),
        ("no objects", "[\n1,\n2\n]", "expected a JSON list of objects"),
        ("torn", printed[0] + "\n" + printed[1][:10], "line 8: not valid JSON"),
        ("half of a character", '{\n"a": "\\ud800"\n}', "half of a character"),
        ("a broken first line", '{"a" 1}\n{"a": 2}', r"line 1: not valid JSON \(Expecting ':' delimiter"),
        ("mixed", '{"a": 1}\n{\n"a": 2}', "line 2: not valid JSON"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            assert not list(read_jsonl(file)), what


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF: "),
        (b"PAR1\x15\x04", "a Parquet table: write its rows as JSON lines"),
        (b"{\\rtf1\\ansi", "an RTF document: give it the ending .rtf"),
        (b"PK\x03\x04\x14\0\0\0xl/workbook.xml", "an Excel workbook: save its sheet as .csv"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"  <!DOCTYPE html>\n<html>", "a web page: "),
        (b"PK\x03\x04\x14\0\0\0data.jsonl", "a ZIP archive: unpack it"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_what_is_no_text_is_named_by_its_first_bytes(tmp_path, name, content, what):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(DataError, match=f"expected (text|JSON), but this is {re.escape(what)}"):
        list(read_records(file))
    file.write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=re.escape(what)):
        list(read_records(file))


def test_an_error_without_a_number_is_no_full_disk(tmp_path):
    with (
        pytest.raises(DataError, match="Not a gzipped file") as error,
        build_folder(tmp_path / "x", "the index "),
    ):
        raise gzip.BadGzipFile("Not a gzipped file (b'{\"')")
    assert "full" not in str(error.value)
    with (
        pytest.raises(DataError, match="the disk is full, it seems"),
        build_folder(tmp_path / "x", "the index "),
    ):
        raise OSError("8192 requested and 4096 written")
