"""Corpora in every layout, and what reading them reports."""

import gzip
import json
from pathlib import Path

import pytest

from core.errors import ConfigError, DataError
from core.types import Passage, passage_id
from eval.experiment import extensions  # noqa: F401 - the formats of datasets
from retrieval.config import IndexConfig
from retrieval.corpora import FORMATS, read_corpus, register_format
from retrieval.long_units import UnitsConfig
from retrieval.sifting import CorpusReport


def read(path: Path, format: str = "jsonl") -> list[Passage]:
    return list(read_corpus([path], format, CorpusReport()))


def test_jsonl_with_title_and_text_or_pyserinis_contents(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    records = [
        {"id": 7, "title": "Paris", "text": "Capital of France."},
        {"id": "wiki18", "contents": '"Berlin"\nCapital of Germany.\nA city.'},
        {"id": "plain", "contents": "No title here."},
        {"title": "Rome", "text": "Without an id."},
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    assert read(path) == [
        Passage("7", "Paris", "Capital of France."),
        Passage("wiki18", "Berlin", "Capital of Germany.\nA city."),
        Passage("plain", "", "No title here."),
        Passage(passage_id("Rome", "Without an id."), "Rome", "Without an id."),
    ]


def test_beir_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    with gzip.open(path, "wt") as stream:
        stream.write('{"_id": "d1", "title": "T", "text": "x", "metadata": {}}\n')
    assert read(path, "beir") == [Passage("d1", "T", "x")]


def test_a_json_list_as_hipporag_has_it(tmp_path: Path) -> None:
    path = tmp_path / "musique_corpus.json"
    path.write_text('[{"title": "T", "text": "x", "idx": 0}]')
    assert read(path, "hippo") == [Passage(passage_id("T", "x"), "T", "x")]


def test_dpr_table_with_quotes_and_a_header(tmp_path: Path) -> None:
    path = tmp_path / "psgs_w100.tsv"
    path.write_text('id\ttext\ttitle\n1\t"Aaron said ""no"", twice."\tAaron\n2\tplain\tB\n')
    assert read(path, "dpr") == [Passage("1", "Aaron", 'Aaron said "no", twice.'), Passage("2", "B", "plain")]
    path.write_text("1\ta text\ttitle\n2\tno title\n")
    with pytest.raises(DataError, match=r"psgs_w100\.tsv, line 2: expected 3 columns"):
        read(path, "dpr")


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path: Path) -> None:
    for config in (IndexConfig, UnitsConfig):
        with pytest.raises(ConfigError, match="unknown corpus format 'jsnl': did you mean 'jsonl'"):
            config([], "", format="jsnl")
    assert all(f'"{name}"' in (IndexConfig.__doc__ or "") for name in FORMATS), (
        "the option's help lists them all"
    )


def test_a_format_that_is_registered_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.corpora.FORMATS", dict(FORMATS))
    path = tmp_path / "names.txt"
    path.write_text("Oslo")
    register_format("names", lambda paths: (Passage(str(path), "", Path(path).read_text()) for path in paths))
    assert read(path, IndexConfig([], "", format="names").format) == [Passage(str(path), "", "Oslo")]


def test_repeats_and_empties_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    rows = [("1", "T", "x"), ("1", "U", "y"), ("2", "T", " x "), ("3", "T", "  "), ("4", "T", "z")]
    path.write_text("\n".join(json.dumps({"id": i, "title": title, "text": text}) for i, title, text in rows))
    report = CorpusReport()
    assert [passage.id for passage in read_corpus([path], "jsonl", report)] == ["1", "4"]
    assert report == CorpusReport(kept=2, empty=1, repeated_ids=1, repeated_texts=1, taken_ids=["1"])
    assert "1 with an id already taken" in str(report)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "1", "text": "x"}\n{"id": "2", "text": \n')
    with pytest.raises(DataError, match=r"corpus\.jsonl, line 2: not valid JSON"):
        read(path)
    path.write_text('{"id": "1", "body": "x"}\n')
    with pytest.raises(DataError, match=r"record 1: expected the fields .* found: body, id"):
        read(path)
    path.write_text("")
    with pytest.raises(DataError, match="no passage was found"):
        read(path)
    with pytest.raises(DataError, match="there is no file"):
        read(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="did you mean 'jsonl'"):
        read(path, "jsnl")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    for name, write in (("a.jsonl", bytes), ("b.jsonl.gz", gzip.compress)):
        (tmp_path / name).write_bytes(write(b'\xef\xbb\xbf{"id": "1", "text": "x"}\n'))
        (passage,) = read_corpus([tmp_path / name], "jsonl", CorpusReport())
        assert passage.text == "x"
