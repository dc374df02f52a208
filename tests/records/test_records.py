"""One reader of records: every record is one, or left out with its place, or the file is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.core.errors import ConfigError, DataError
from corag.data.records import Note, OddRecordError, Record, read_records
from tests.messages import raises_message

ROWS = [{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]


def fields(path: Path, **options: Any) -> list[Any]:
    """Return the fields of records, and the other items as they are."""
    return [each.fields if isinstance(each, Record) else each for each in read_records(path, **options)]


def test_json_lines_and_a_json_list_whatever_the_file_is_called(tmp_path: Path) -> None:
    texts = {
        "lines": '{"a": 1, "b": {"c": 2}}\n\n{"a": 2, "b": {"c": 3}}\n',
        "a list": json.dumps(ROWS),
        "a printed list": "\n" + json.dumps(ROWS, indent=2),
    }
    for name in ("x.jsonl", "x.json", "x"):
        for what, text in texts.items():
            (tmp_path / name).write_text(text)
            assert fields(tmp_path / name) == ROWS, (name, what)
    (tmp_path / "empty.jsonl").write_text("\n")
    assert fields(tmp_path / "empty.jsonl") == []


def test_other_shapes_of_json_get_a_sentence_that_leads_on(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text in (
        json.dumps({"version": 1, "data": ROWS}, indent=1),
        json.dumps({"data": ROWS}, indent=1),
        "\n".join(json.dumps(row, indent=2) for row in ROWS),
        '[{"a": 1},\n {"a": 2},]',
        '[{"a": 1},\n {"a": ',
    ):
        file.write_text(text)
        with raises_message(DataError):
            fields(file)


def test_an_odd_line_costs_no_other(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"torn": \n{"a": 1}\n{"a" 2}\n[3]\n4\n{"a": "\\ud800"}\n{"a": NaN}\n')
    torn, one, comma, three, four, half, nan = read_records(file)
    assert isinstance(one, Record) and one == (f"{file}, line 2", {"a": 1})
    for item, number in ((torn, 1), (comma, 3), (three, 4), (four, 5), (half, 6)):
        assert isinstance(item, OddRecordError) and str(item).startswith(f"{file}, line {number}: ")
    assert isinstance(nan, Record) and nan.fields["a"] != nan.fields["a"]


def test_an_object_around_records_is_refused_and_not_read_as_its_last(tmp_path: Path) -> None:
    for number, text in enumerate(('{"data": [\n{"a": 1},\n{"a": 2}\n]}\n', '{"a": 1,\n"b": 2}\n{"a": 3}\n')):
        (file := tmp_path / f"{number}.jsonl").write_text(text)
        with pytest.raises(DataError, match="an object that spans lines"):
            list(read_records(file))


PIECES = ["Ada", "was born", " ", ",", ";", "|", "\t", '"', '""', '", "', "\n", "\\", "5.2", "'", "#", "é"]


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.lists(st.sampled_from(PIECES)).map("".join), min_size=3, max_size=3), max_size=9))
def test_what_csv_writes_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, quoting: int, delimiter: str, rows: list[list[str]]
) -> None:
    file = tmp_path_factory.mktemp("t") / "x.csv"
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
    writer.writerows([("id", "title", "text"), *rows])
    file.write_bytes(stream.getvalue().encode())
    expected = [row for row in rows if any(map(str.strip, row))]
    assert [list(each.values()) for each in fields(file, delimiter=delimiter)] == expected


def test_a_table_is_read_with_its_header_and_odd_rows_are_named(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(
        'id , text\n1,"Two,\nlines"\n2,short,long\n3,"open" mark,x\n4,fine\n\n5,"never closed\n6,x\n'
    )
    *rows, end = fields(file)
    assert [row for row in rows if isinstance(row, dict)] == [
        {"id": "1", "text": "Two,\nlines"},
        {"id": "4", "text": "fine"},
    ]
    odd = [str(row) for row in [*rows, end] if isinstance(row, OddRecordError)]
    assert [text.partition(": ")[0] for text in odd] == [f"{file}, line {n}" for n in (4, 5, 8)]
    assert "takes 2 lines with it" in odd[-1]
    for text in ("id,text,text\n1,a,b\n", "id;text\n1;a, b\n"):
        file.write_text(text)
        with raises_message(DataError):
            fields(file)
    with raises_message(ConfigError):
        fields(file, delimiter="::")


def test_marks_of_a_tsv_file_enclose_cells_only_if_its_writer_quoted(tmp_path: Path) -> None:
    file = tmp_path / "x.tsv"
    file.write_text('id\ttext\n1\t"He said ""no"", twice."\n2\tplain\n3\t"tidy"\n')
    assert [row["text"] for row in fields(file)] == ['He said "no", twice.', "plain", "tidy"]
    texts = ['"Alpha" is a letter.', '"Unbalanced at first.', "Not swallowed.", '"Heroes"', 'A "mark".']
    file.write_text("id\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(texts)))
    note, *rows = fields(file)
    assert isinstance(note, Note) and [row["text"] for row in rows] == texts
    for lone in (400, 1900):  # a mark among the lines that are looked at before, and one behind them
        texts = ['"Never closed.' if n == lone else f"passage {n}" for n in range(2500)]
        file.write_text("id\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(texts)))
        rows = [row for row in fields(file) if not isinstance(row, Note)]
        assert [row["text"] for row in rows] == texts


def test_columns_may_have_names_where_there_is_no_header(tmp_path: Path) -> None:
    names = ("id", "text", "title")
    file = tmp_path / "psgs_w100.tsv"
    file.write_text("1\ta text\tT\n")
    assert fields(file, names=names) == [{"id": "1", "text": "a text", "title": "T"}]
    file.write_text("id\ttitle\ttext\n1\tT\ta text\n")
    assert fields(file, names=names) == [{"id": "1", "text": "a text", "title": "T"}]


LINES = "".join(json.dumps({"id": n, "text": f"Passage {n * 7919} über {n}."}) + "\n" for n in range(5000))
PACKERS = {
    "gzip": gzip.compress,
    "zstd": lambda data: pyarrow.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("name", PACKERS)
def test_a_compressed_file_is_known_by_its_first_bytes_and_a_torn_one_is_named(
    tmp_path: Path, name: str
) -> None:
    whole = PACKERS[name](LINES.encode())
    for ending in ("jsonl", "jsonl.gz", "zst"):
        file = tmp_path / f"a.{ending}"
        file.write_bytes(whole)
        assert [each["id"] for each in fields(file)] == list(range(5000))
        file.write_text(LINES)
        assert len(fields(file)) == 5000, "a plain file under the name of a compressed one"
    half = len(LINES) // 2
    file.write_bytes(b"".join(PACKERS[name](part.encode()) for part in (LINES[:half], LINES[half:])))
    assert len(fields(file)) == 5000, "frames one after another are one file"
    for data in (whole[: len(whole) // 2], whole[:-3]):
        file.write_bytes(data)
        records = []
        with pytest.raises(DataError, match=r"breaks off or is damaged after [\d,]+ records") as error:
            for item in read_records(file):
                records.append(item)
        assert f"after {len(records):,} records" in str(error.value)


def test_without_its_package_zstd_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.jsonl.zst"
    file.write_bytes(PACKERS["zstd"](LINES.encode()))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"a\.jsonl\.zst', compressed with zstd, needs pyarrow"):
        fields(file)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF: "),
        (b"PAR1\x15\x04", "a Parquet table: give it the ending .parquet"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (b"PK\x03\x04\x14\0\0\0data.jsonl", "a ZIP archive: unpack it"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_what_is_no_text_is_named_by_its_first_bytes(
    tmp_path: Path, name: str, content: bytes, what: str
) -> None:
    for data in (content, gzip.compress(content)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=f"expected text, but this is {re.escape(what)}"):
            fields(tmp_path / name)


def test_what_cannot_be_opened_or_read_again_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises_message(DataError):
        fields(tmp_path / "nowhere.jsonl")
    with raises_message(DataError):
        fields(tmp_path)
    closed = tmp_path / "closed.jsonl"
    closed.write_text(LINES)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # which root may read anyway
    with raises_message(DataError):
        fields(closed)
    monkeypatch.undo()
    os.mkfifo(tmp_path / "pipe")
    with raises_message(DataError):
        fields(tmp_path / "pipe")


def test_parquet_and_arrow(tmp_path: Path) -> None:
    from pyarrow import ipc, parquet, table

    rows = table({"id": ["1", "2"], "text": ["A city.", "Old."], "embedding": [[0.1], [0.2]]})
    parquet.write_table(rows, tmp_path / "c.parquet")
    with ipc.new_stream(str(tmp_path / "c.arrow"), rows.schema) as stream:
        stream.write_table(rows)
    with ipc.new_file(str(tmp_path / "d.arrow"), rows.schema) as file:
        file.write_table(rows)
    for name in ("c.parquet", "c.arrow", "d.arrow"):
        assert fields(tmp_path / name) == [{"id": "1", "text": "A city."}, {"id": "2", "text": "Old."}]
    whole = (tmp_path / "c.parquet").read_bytes()
    binary = table({"text": pyarrow.array([b"\xff"], pyarrow.binary()).view(pyarrow.string())})
    parquet.write_table(binary, tmp_path / "d.parquet")
    for data in (whole[:200], whole[:4] + bytes(60) + whole[64:], (tmp_path / "d.parquet").read_bytes()):
        (tmp_path / "x.parquet").write_bytes(data)
        with pytest.raises(DataError, match=r"x\.parquet: it is damaged, or no parquet file"):
            fields(tmp_path / "x.parquet")


def test_a_table_in_another_encoding_is_read_by_the_likeliest_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes("id,text\n1,Łódź leży nad rzeką Łódką w Polsce\n".encode("cp1250"))
    row, note = fields(file)
    assert row["text"].startswith("Łódź leży") and "not UTF-8: read as cp1250, a guess" in note.text
    assert fields(file, encoding="cp1250") == [row]
