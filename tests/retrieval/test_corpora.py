"""Corpora in every layout, and what reading them reports."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corag.core.errors import ConfigError, DataError
from corag.core.runs.rows import SavedAnswer, SavedRow
from corag.core.types import Passage, Question, passage_id
from eval.experiment import extensions  # noqa: F401 - the formats of datasets
from eval.experiment.gold import match_gold
from eval.scoring.gold import find_gold
from retrieval.config import IndexConfig
from retrieval.corpora.formats import FORMATS, read_corpus, register_format
from retrieval.corpora.passages import Reading
from retrieval.corpora.sifting import CorpusReport
from retrieval.index.aliases import Aliases
from retrieval.index.build import build_index
from retrieval.index.store import PassageStore
from tests.messages import raises_message


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
    assert read(path) == [Passage(passage_id("T", "x"), "T", "x")]


def test_dpr_table_with_quotes_and_a_header(tmp_path: Path) -> None:
    path = tmp_path / "psgs_w100.tsv"
    path.write_text('id\ttext\ttitle\n1\t"Aaron said ""no"", twice."\tAaron\n2\tplain\tB\n')
    assert read(path, "dpr") == [Passage("1", "Aaron", 'Aaron said "no", twice.'), Passage("2", "B", "plain")]
    path.write_text("1\ta text\ttitle\n2\tno title\n")
    assert read(path, "dpr") == [Passage("1", "title", "a text")]
    with raises_message(DataError):
        list(read_corpus([path], "dpr", CorpusReport(), strict=True))


def test_a_format_that_is_registered_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.corpora.formats.FORMATS", dict(FORMATS))
    path = tmp_path / "names.txt"
    path.write_text("Oslo")
    register_format(
        "names", lambda paths, _: (Passage(str(path), "", Path(path).read_text()) for path in paths)
    )
    assert read(path, IndexConfig([], "", format="names").format) == [Passage(str(path), "", "Oslo")]


def test_repeats_and_empties_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    rows = [("1", "T", "x"), ("1", "U", "y"), ("2", "T", " x "), ("3", "T", "  "), ("4", "T", "z")]
    path.write_text("\n".join(json.dumps({"id": i, "title": title, "text": text}) for i, title, text in rows))
    report = CorpusReport()
    assert [passage.id for passage in read_corpus([path], "jsonl", report)] == ["1", "1#2", "4"]
    assert report == CorpusReport(
        passages=3, empty=1, shared_ids=1, repeated_texts=1, first_repeated_ids=["1"], same_as=[("2", 0)]
    )
    assert report.sentences() == [
        "3 passages kept; dropped: 1 empty, 1 with a title and text already seen.",
        "1 passages share an id with an earlier one (1): the first keeps it, the others are called ID#2, "
        "ID#3, ...",
    ]
    with raises_message(DataError):
        list(read_corpus([path], "jsonl", CorpusReport(), strict=True))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "1", "text": "x"}\n{"id": "2", "text": \n')
    with raises_message(DataError):
        list(read_corpus([path], "jsonl", CorpusReport(), strict=True))
    path.write_text('{"id": "1", "summary": "x"}\n')
    with raises_message(DataError):
        read(path)
    path.write_text("")
    with raises_message(DataError):
        read(path)
    with raises_message(DataError):
        read(tmp_path / "nowhere.jsonl")
    with raises_message(ConfigError):
        read(path, "jsnl")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    for name, write in (("a.jsonl", bytes), ("b.jsonl.gz", gzip.compress)):
        (tmp_path / name).write_bytes(write(b'\xef\xbb\xbf{"id": "1", "text": "x"}\n'))
        (passage,) = read_corpus([tmp_path / name], "jsonl", CorpusReport())
        assert passage.text == "x"


def lines(*records: Any) -> str:
    return "\n".join(map(json.dumps, records))


@pytest.mark.parametrize("name", ["contents", "passage", "body", "paragraph_text"])
@pytest.mark.parametrize("identifier", ["docid", "_id", "pid"])
def test_fields_go_by_the_names_of_official_formats(name: str, identifier: str, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(lines({identifier: "d1", name: "Some text."}))
    assert read(path) == [Passage("d1", "", "Some text.")]


def test_columns_name_what_has_another_name(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(lines({"key": "k", "body": "B", "page": {"summary": "S", "name": "N"}}))

    def mapped(path: Path, **options: Any) -> list[Passage]:
        config = IndexConfig([str(path)], "", **options)
        return list(read_corpus([path], "auto", CorpusReport(), config.reading))

    columns = ["text=page.summary", "title=page.name", "id=key"]
    assert mapped(path, columns=columns) == [Passage("k", "N", "S")]
    table = tmp_path / "c.csv"
    table.write_text("Key;Inhalt;Thema\n1;A city on a fjord;Oslo\n", encoding="utf-16")
    columns = ["text=Inhalt", "title=Thema", "id=Key"]
    assert mapped(table, columns=columns, delimiter=";") == [Passage("1", "Oslo", "A city on a fjord")]
    with raises_message(DataError):
        read(table, "auto")
    with raises_message(ConfigError):
        mapped(table, columns=["text=Text"], delimiter=";")
    with raises_message(ConfigError):
        IndexConfig([], "", columns=["text=a", "body=b"])
    for name, value in (("columns", ["text=a"]), ("encoding", "cp1252")):
        with raises_message(ConfigError):
            mapped(tmp_path, format="documents", **{name: value})


def test_an_odd_record_is_left_out_with_its_reason_and_the_others_are_read(tmp_path: Path) -> None:
    path, report = tmp_path / "c.jsonl", CorpusReport()
    odd = [{"id": 2}, {"id": "3", "text": {"a": 1}}, {"id": [{"a": 1}], "text": "x"}, 5]
    path.write_text(lines({"id": "1", "text": "x"}, *odd) + '\n{"torn": \n')
    assert [each.id for each in read_corpus([path], "jsonl", report)] == ["1"]
    assert report.odd.total() == 5 and report.records == 6
    counts, examples = report.sentences()
    assert counts == (
        "1 passages kept; dropped: 1 without a field of text, 1 whose 'text' is no text, 1 whose 'id' is no "
        "text, 1 not an object, 1 not valid JSON."
    )
    assert all(f"{path}, line {n}: " in examples for n in range(2, 7))
    for record in odd:
        path.write_text(lines({"id": "1", "text": "x"}, record))
        with raises_message(DataError):
            list(read_corpus([path], "jsonl", CorpusReport(), strict=True))


def test_blank_ids_are_made_and_those_that_lucene_cannot_hold_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    ids = ("  ", " a ", "x" * 32_701, "ü" * 17_000, "y" * 32_700)
    path.write_text(lines(*({"id": each, "text": f"Text {n}."} for n, each in enumerate(ids))))
    report = CorpusReport()
    assert [each.id for each in read_corpus([path], "jsonl", report)] == [
        passage_id("", "Text 0."), "a", "y" * 32_700,
    ]  # fmt: skip
    assert report.odd == {"with an id that is too long": 2} and report.records == len(ids)
    assert f"{path}, line 3: expected an id of at most 32,700 bytes" in report.first_odd[0]
    assert report.notes == [f"{path}: 1 records have no id: theirs is made of title and text"]


def test_a_column_that_no_record_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(lines({"key": "a", "body": "One."}, {"body": "Two."}))
    for name in ("key", "kay"):
        reading = Reading(columns={"text": "body", "id": name})
        passages = read_corpus([path], "jsonl", CorpusReport(), reading)
        if name == "key":
            assert [each.id for each in passages] == ["a", passage_id("", "Two.")]
        else:
            with raises_message(ConfigError):
                list(passages)


def test_ids_that_passages_share_are_told_apart(tmp_path: Path) -> None:
    path, report = tmp_path / "c.jsonl", CorpusReport()
    ids = ["d", "d", "e", "d", "d#2", "line\nbreak"]
    path.write_text(lines(*({"id": name, "text": f"text {n}"} for n, name in enumerate(ids))))
    assert [each.id for each in read_corpus([path], "jsonl", report)] == [
        "d", "d#2", "e", "d#3", "d#2#2", "line break",
    ]  # fmt: skip
    assert (report.shared_ids, report.joined_ids, report.dropped) == (3, 1, 0)


async def test_an_id_that_was_dropped_as_a_repeat_stands_for_the_one_that_was_kept(tmp_path: Path) -> None:
    path, out = tmp_path / "c.jsonl", tmp_path / "index"
    rows = [
        ("d1", "Oslo."),
        ("d2", " Oslo. "),
        ("d3", "Ghent."),
        ("d3", "Bergen."),
        ("d4", ""),
        ("d5", "Oslo."),
    ]
    path.write_text(lines(*({"id": name, "text": text} for name, text in rows)))
    built = build_index(IndexConfig([str(path)], str(out)), lambda _: None)
    assert built.passages == 3 and built.notes[0].startswith(
        "3 passages kept; dropped: 1 empty, 2 with a title"
    )
    aliases = Aliases.load(out)
    assert aliases == Aliases({"d2": "d1", "d5": "d1"}, numbered=True)
    store = PassageStore(out)
    assert store.passages(["d2", "d3#2", "d4"]) == {
        "d2": Passage("d2", "", "Oslo."), "d3#2": Passage("d3#2", "", "Bergen."),
    }  # fmt: skip
    store.close()

    def recall(collected: list[str], gold: tuple[str, ...], k: int) -> float:
        row = SavedRow.without_answer(Question("1", "Who?", supporting=gold))
        found = find_gold(replace(row, answer=SavedAnswer("", tuple(collected), 1, "")), aliases)
        assert found is not None
        return found.share(k)

    (asked,) = await match_gold([Question("1", "Who?", supporting=("d2",))], None, [str(out)])
    assert asked.supporting == ("d1",) and recall(["d1"], asked.supporting, 5) == 1.0
    assert recall(["d3#2"], ("d3", "d1"), 5) == 0.5, "a chunk counts as its document"
    assert recall(["d1", "d3#2"], ("d3",), 1) == 0.0


def test_stray_bytes_of_a_corpus_are_marked_and_counted(tmp_path: Path) -> None:
    text = "".join(f'{{"id": "p{n}", "text": "Der größte Fluß über Nr. {n}"}}\n' for n in range(5000))
    good = text.encode()
    contents = {
        "c.jsonl": good.replace(b"Nr. 4000", b"Nr. \xe9 4000").replace(b'Nr. 7"', b'\xff\xff"'),
        "c.json": b"[" + b",".join(good.split(b"\n")[:20]).replace(b'Nr. 3"', b'\xe9"') + b"]",
        "c.tsv": b"id\ttext\ttitle\n" + "1\tFluß\tKöln\n2\tBäche\tÄste\n".encode() * 3 + b"3\tF\xe9\tT\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        report = CorpusReport()
        passages = list(read_corpus([tmp_path / name], "auto", report))
        assert any("\ufffd" in passage.text for passage in passages), name
        count = "3 bytes were" if name == "c.jsonl" else "1 byte was"
        assert f"{tmp_path / name}: {count} not UTF-8, read as U+FFFD" in report.notes, (name, report.notes)
