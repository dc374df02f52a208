"""Corpora in every layout, and what reading them reports."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corag.core.errors import ConfigError, DataError
from corag.core.help import descriptions
from corag.core.runs.rows import SavedAnswer, SavedRow
from corag.core.types import Passage, Question, passage_id
from eval.experiment import extensions  # noqa: F401 - the formats of datasets
from eval.scoring.gold import find_gold
from retrieval.config import IndexConfig
from retrieval.corpora.formats import FORMATS, read_corpus, register_format
from retrieval.corpora.records import Columns
from retrieval.corpora.sifting import CorpusReport
from retrieval.index.aliases import Aliases
from retrieval.index.build import build_index
from retrieval.index.long_units import UnitsConfig
from retrieval.index.store import PassageStore
from tests.core.encoded_texts import TEXTS
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
    assert read(path, "hippo") == [Passage(passage_id("T", "x"), "T", "x")]


def test_dpr_table_with_quotes_and_a_header(tmp_path: Path) -> None:
    path = tmp_path / "psgs_w100.tsv"
    path.write_text('id\ttext\ttitle\n1\t"Aaron said ""no"", twice."\tAaron\n2\tplain\tB\n')
    assert read(path, "dpr") == [Passage("1", "Aaron", 'Aaron said "no", twice.'), Passage("2", "B", "plain")]
    path.write_text("1\ta text\ttitle\n2\tno title\n")
    assert read(path, "dpr") == [Passage("1", "title", "a text")]
    with raises_message(DataError):
        list(read_corpus([path], "dpr", CorpusReport(), strict=True))


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path: Path) -> None:
    for config in (IndexConfig, UnitsConfig):
        with raises_message(ConfigError):
            config([], "", format="jsnl")
    assert all(f'"{name}"' in dict(descriptions(IndexConfig))["format"] for name in FORMATS), (
        "the option's help lists them all"
    )


def test_a_format_that_is_registered_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.corpora.formats.FORMATS", dict(FORMATS))
    path = tmp_path / "names.txt"
    path.write_text("Oslo")
    register_format("names", lambda paths: (Passage(str(path), "", Path(path).read_text()) for path in paths))
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
    strict = CorpusReport()
    assert [each.id for each in read_corpus([path], "jsonl", strict, strict=True)] == ["1", "4"]
    assert strict.repeated_ids == 1 and "1 with an id already taken (1)" in str(strict)


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
    with raises_message(DataError):
        read(path, "jsnl")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    for name, write in (("a.jsonl", bytes), ("b.jsonl.gz", gzip.compress)):
        (tmp_path / name).write_bytes(write(b'\xef\xbb\xbf{"id": "1", "text": "x"}\n'))
        (passage,) = read_corpus([tmp_path / name], "jsonl", CorpusReport())
        assert passage.text == "x"


def lines(*records: Any) -> str:
    return "\n".join(map(json.dumps, records))


ONE = [("1", "Oslo", "A city.")]
SHAPES: dict[str, tuple[str, str, list[tuple[str, str, str]]]] = {
    "LangChain": (
        "docs.jsonl",
        lines(
            {
                "id": "1",
                "metadata": {"source": "a.pdf", "title": "Oslo"},
                "page_content": "A city.",
                "type": "Document",
            }
        ),
        ONE,
    ),
    "LangChain, as dumpd writes it": (
        "docs.json",
        json.dumps(
            [
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain", "Document"],
                    "kwargs": {"id": "1", "metadata": {"title": "Oslo"}, "page_content": "A city."},
                }
            ]
        ),
        ONE,
    ),
    "LlamaIndex's nodes": (
        "nodes.json",
        json.dumps([{"id_": "1", "embedding": None, "metadata": {"title": "Oslo"}, "text": "A city."}]),
        ONE,
    ),
    "LlamaIndex's document store": (
        "docstore.json",
        json.dumps(
            {
                "docstore/data": {
                    "1": {
                        "__data__": {"id_": "1", "metadata": {"title": "Oslo"}, "text": "A city."},
                        "__type__": "1",
                    }
                },
                "docstore/metadata": {"1": {"doc_hash": "x"}},
            }
        ),
        ONE,
    ),
    "HippoRAG's mapping": (
        "corpus.json",
        json.dumps({"Oslo": "A city.", "Ghent": ["A city.", " In Belgium."]}),
        [("", "Oslo", "A city."), ("", "Ghent", "A city. In Belgium.")],
    ),
    "SQuAD": (
        "train.json",
        json.dumps(
            {"version": "1.1", "data": [{"title": "Oslo", "paragraphs": [{"context": "A city.", "qas": []}]}]}
        ),
        [("", "Oslo", "A city.")],
    ),
    "SQuAD's articles in lines": (
        "train.jsonl",
        lines({"title": "Oslo", "paragraphs": [{"context": "A city."}, {"context": "A port."}]}),
        [("", "Oslo", "A city."), ("", "Oslo", "A port.")],
    ),
    "AutoRAG as CSV": (
        "corpus.csv",
        'doc_id,contents,metadata\n1,"Oslo\nA city.","{\'last_modified_datetime\': 1}"\n',
        ONE,
    ),
    "MS MARCO's collection": (
        "collection.tsv",
        '1\tA "city" it is.\n2\t"Oslo" is old.\n',
        [("1", "", 'A "city" it is.'), ("2", "", '"Oslo" is old.')],
    ),
    "MS MARCO's documents": (
        "docs.tsv",
        "D1\thttp://x.no\tOslo\tA city on a fjord.\n",
        [("D1", "Oslo", "A city on a fjord.")],
    ),
    "MS MARCO 2": (
        "p.jsonl",
        lines({"pid": "1", "docid": "9", "passage": "A city.", "spans": "(0,9)"}),
        [("1", "", "A city.")],
    ),
    "SciFact": (
        "s.jsonl",
        lines({"doc_id": 1, "title": "Oslo", "abstract": ["A city.", "A port."]}),
        [("1", "Oslo", "A city. A port.")],
    ),
    "Elasticsearch": (
        "e.jsonl",
        lines({"_index": "i", "_id": "1", "_source": {"title": "Oslo", "body": "A city."}}),
        ONE,
    ),
    "Hugging Face's server": (
        "r.json",
        json.dumps(
            {
                "features": [{"name": "id"}],
                "rows": [{"row_idx": 0, "row": {"id": "1", "title": "Oslo", "text": "A city."}}],
            }
        ),
        ONE,
    ),
    "MongoDB": ("m.jsonl", lines({"_id": {"$oid": "1"}, "title": "Oslo", "content": "A city."}), ONE),
    "numbers and null": (
        "n.jsonl",
        lines(
            {"id": 1, "title": 1984, "text": 42},
            {"id": 2.0, "title": None, "text": "x"},
            {"id": 3, "text": None},
        ),
        [("1", "1984", "42"), ("2", "", "x")],
    ),
    "a list in lines": ("l.jsonl", '[\n{"id": 1, "title": "Oslo", "text": "A city."}\n]', ONE),
    "objects over several lines": (
        "l.jsonl",
        '{\n "id": 1,\n "title": "Oslo",\n "text": "A city."\n}\n{\n "id": 2,\n "text": "x"\n}\n',
        [*ONE, ("2", "", "x")],
    ),
    "lists as columns": ("c.json", json.dumps({"id": ["1"], "title": ["Oslo"], "text": ["A city."]}), ONE),
    "records by id": ("i.json", json.dumps({"1": {"title": "Oslo", "text": "A city."}}), ONE),
    "texts by number": (
        "t.json",
        json.dumps({"7": "A city.", "8": "A port."}),
        [("7", "", "A city."), ("8", "", "A port.")],
    ),
    "one record": ("o.json", json.dumps({"id": "1", "title": "Oslo", "text": "A city."}), ONE),
    "a list under a name": (
        "d.json",
        json.dumps({"name": "my corpus", "documents": [{"id": 1, "title": "Oslo", "text": "A city."}]}),
        ONE,
    ),
    "a table whose columns are swapped": ("t.tsv", "title\ttext\tid\nOslo\tA city.\t1\n", ONE),
    "Excel's semicolons": (
        "x.csv",
        "\ufeffID;Title;Text\r\n1;Oslo;A city.\r\n2;Ghent;Old, it is\r\n",
        [*ONE, ("2", "Ghent", "Old, it is")],
    ),
    "lines within cells": (
        "y.csv",
        'id,text\n1,"One, two\n\nthree, four"\n2,"A ""quote"""\n3,x\n',
        [("1", "", "One, two\n\nthree, four"), ("2", "", 'A "quote"'), ("3", "", "x")],
    ),
    "a mark that is never closed": (
        "z.csv",
        'id,text\n1,"Open\n2,b\n3,c\n',
        [("1", "", '"Open'), ("2", "", "b"), ("3", "", "c")],
    ),
    "one column": (
        "w.csv",
        "text\nA city, with a comma\nA port\n",
        [("", "", "A city, with a comma"), ("", "", "A port")],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_corpora_of_other_toolkits_are_read_as_they_are(shape: str, tmp_path: Path) -> None:
    name, content, expected = SHAPES[shape]
    (tmp_path / name).write_text(content)
    passages = read(tmp_path / name, "auto")
    assert [(each.title, each.text) for each in passages] == [pair[1:] for pair in expected]
    assert [each.id for each in passages] == [
        name or passage_id(title, text) for name, title, text in expected
    ]


@pytest.mark.parametrize("name", ["page_content", "content", "contents", "passage", "body", "document"])
@pytest.mark.parametrize("identifier", ["docid", "_id", "pid", "doc_id"])
def test_fields_go_by_the_names_of_other_toolkits(name: str, identifier: str, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(lines({identifier: "d1", name: "Some text."}))
    assert read(path) == [Passage("d1", "", "Some text.")]


def test_parquet_and_arrow(tmp_path: Path) -> None:
    from pyarrow import ipc, parquet, table

    rows = table(
        {
            "id": ["1", "2"], "url": ["u", "v"], "title": ["Oslo", "Ghent"], "text": ["A city.", "Old."],
            "embedding": [[0.1], [0.2]],
        }
    )  # fmt: skip
    parquet.write_table(rows, tmp_path / "c.parquet")
    with ipc.new_stream(str(tmp_path / "c.arrow"), rows.schema) as stream:
        stream.write_table(rows)
    with ipc.new_file(str(tmp_path / "d.arrow"), rows.schema) as file:
        file.write_table(rows)
    for name in ("c.parquet", "c.arrow", "d.arrow"):
        assert read(tmp_path / name, "auto") == [
            Passage("1", "Oslo", "A city."),
            Passage("2", "Ghent", "Old."),
        ]
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "c.parquet").read_bytes()[:200])
    with raises_message(DataError):
        read(tmp_path / "torn.parquet", "auto")


def test_columns_name_what_has_another_name(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(lines({"key": "k", "body": "B", "page": {"summary": "S", "name": "N"}}))

    def mapped(path: Path, *columns: str) -> list[Passage]:
        return list(read_corpus([path], "auto", CorpusReport(), columns=Columns.parse(columns)))

    assert mapped(path, "text=page.summary", "title=page.name", "id=key") == [Passage("k", "N", "S")]
    table = tmp_path / "c.csv"
    table.write_text("Key,Inhalt,Thema\n1,A city on a fjord,Oslo\n2,A city on a river,Ghent\n")
    assert mapped(table, "text=Inhalt", "title=Thema", "id=Key")[0] == Passage(
        "1", "Oslo", "A city on a fjord"
    )
    assert mapped(table, "text=2", "title=3", "id=1")[1] == Passage("1", "Oslo", "A city on a fjord")
    with raises_message(DataError):  # its first row is no passage
        read(table, "auto")
    with raises_message(DataError):
        mapped(table, "text=Text")
    with raises_message(ConfigError):
        IndexConfig([], "", columns=["text=a", "body=b"])
    with raises_message(ConfigError):
        IndexConfig([], "", format="documents", columns=["text=a"])


def test_marks_of_a_table_are_part_of_its_texts_where_its_writer_did_not_quote(tmp_path: Path) -> None:
    path, report = tmp_path / "c.tsv", CorpusReport()
    texts = ['"Alpha" is a letter.', '"Unbalanced at its beginning.', "Not swallowed.", 'A "mark" inside.']
    path.write_text("id\ttext\ttitle\n" + "".join(f"{n}\t{text}\tT{n}\n" for n, text in enumerate(texts)))
    assert [each.text for each in read_corpus([path], "dpr", report)] == texts
    assert report.notes == [
        f"{path}: cells between tabs, quotation marks are part of the text, columns id, text, title (by the "
        "header)"
    ]
    # Where most rows are quoted, the odd one that is not stays whole, too, and is counted.
    quoted = [f'"He said ""no"" {n} times."' for n in range(5)]
    texts = [*quoted, '"Alpha" is a letter.', "plain"]
    path.write_text("".join(f"{n}\t{text}\tT{n}\n" for n, text in enumerate(texts)))
    report = CorpusReport()
    *_, alpha, plain = read_corpus([path], "dpr", report)
    assert (alpha.text, plain.text) == (texts[-2], "plain")
    assert "enclose cells (1 rows whose marks do not close were taken as they stand)" in report.notes[0]


def test_a_mark_that_is_never_closed_costs_its_own_row_and_none_of_those_after_it(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    whole = ['1,"Two,\nlines"', '2,"One, two"', '3,"He said ""no"""']
    after = ['5,"Three,\nlines"', '6,"Four, five"']
    path.write_text("\n".join(["id,text", *whole, '4,"Open', *after]) + "\n")
    texts = [each.text for each in read(path, "dpr")]
    assert texts == ["Two,\nlines", "One, two", 'He said "no"', '"Open', "Three,\nlines", "Four, five"]


def test_an_odd_record_is_left_out_with_its_reason_and_the_others_are_read(tmp_path: Path) -> None:
    path, report = tmp_path / "c.jsonl", CorpusReport()
    odd = [{"id": 2}, {"id": "3", "text": {"a": 1}}, {"id": [4], "text": "x"}, 5, {"id": 6, "text": True}]
    path.write_text(lines({"id": "1", "text": "x"}, *odd) + '\n{"torn": \n')
    assert [each.id for each in read_corpus([path], "jsonl", report)] == ["1"]
    assert report.odd.total() == 6 and report.records == 7
    assert report.sentences() == [
        "1 passages kept; dropped: 1 without a field of text, 2 whose 'text' is no text, 1 whose 'id' is no "
        "id, 1 not an object, 1 not valid JSON.",
        "6 odd record(s) are left out (strict refuses them):"
        f"\n  {path}, line 2: expected a text under 'text' or another name, but found: id. If one of "
        "them is the text, name it: columns=text=NAME."
        f"\n  {path}, line 3: expected 'text' to be a text, a number or a list of texts, but it is an object."
        f"\n  {path}, line 4: expected 'id' to be a text or a number, but it is [4]."
        f"\n  {path}, line 5: expected a JSON object, found int: 5."
        f"\n  {path}, line 6: expected 'text' to be a text, a number or a list of texts, but it is True."
        "\n  and 1 more",
    ]
    for record in odd:
        path.write_text(lines({"id": "1", "text": "x"}, record))
        with raises_message(DataError):
            list(read_corpus([path], "jsonl", CorpusReport(), strict=True))


def test_a_comma_too_many_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('[{"id": 1, "text": "a"},\n {"id": 2, "text": "b"},]')
    with raises_message(DataError):
        read(path)


def test_ids_that_passages_share_are_told_apart(tmp_path: Path) -> None:
    path, report = tmp_path / "c.jsonl", CorpusReport()
    ids = ["d", "d", "e", "d", "d#2", "line\nbreak"]
    path.write_text(lines(*({"id": name, "text": f"text {n}"} for n, name in enumerate(ids))))
    assert [each.id for each in read_corpus([path], "jsonl", report)] == [
        "d", "d#2", "e", "d#3", "d#2#2", "line break",
    ]  # fmt: skip
    assert (report.shared_ids, report.joined_ids, report.dropped) == (3, 1, 0)


def test_an_id_that_was_dropped_as_a_repeat_stands_for_the_one_that_was_kept(tmp_path: Path) -> None:
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

    def recall(collected: list[str], gold: list[str], k: int, aliases: Aliases = aliases) -> float:
        row = SavedRow.without_answer(Question("1", "Who?", supporting=tuple(gold)))
        found = find_gold(replace(row, answer=SavedAnswer("", tuple(collected), 1, "")), aliases)
        assert found is not None
        return found.share(k)

    assert recall(["d1"], ["d2"], 5, Aliases()) == 0.0 < recall(["d1"], ["d2"], 5) == 1.0
    assert recall(["d3#2"], ["d3", "d2"], 5) == 0.5, "a chunk counts as its document"
    assert recall(["d1", "d3#2"], ["d3"], 1) == 0.0


def test_stray_bytes_of_a_corpus_are_marked_and_counted(tmp_path: Path) -> None:
    """The set is not refused for one; in another encoding it is, with the command that converts it."""
    lines = "".join(
        f'{{"id": "p{n}", "title": "Köln", "text": "Der größte Fluß über Nr. {n}"}}\n' for n in range(5000)
    )
    good = lines.encode()
    contents = {
        "c.jsonl": good.replace(b"Nr. 4000", b"Nr. \xe9 4000").replace(b'Nr. 7"', b'\xff\xff"'),
        "c.json": b"[" + b",".join(good.split(b"\n")[:20]).replace(b'Nr. 3"', b'\xe9"') + b"]",
        "c.tsv": b"id\ttext\ttitle\n" + "1\tFluß\tKöln\n2\tBäche\tÄste\n".encode() * 3 + b"3\tF\xe9\tT\n",
        "printed.jsonl": b"{\n"
        + good.split(b"\n")[0][1:].replace(b"Nr. 0", "äöü".encode() + b"\xe9")
        + b"\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        report = CorpusReport()
        passages = list(read_corpus([tmp_path / name], "auto", report))
        assert any("\ufffd" in passage.text for passage in passages), name
        count = "3 bytes were" if name == "c.jsonl" else "1 byte was"
        assert f"{tmp_path / name}: {count} not UTF-8: read as U+FFFD" in report.notes, (name, report.notes)
    (tmp_path / "latin.jsonl").write_bytes(lines.encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.jsonl, line 1: byte .* iconv -f LATIN1 -t UTF-8"):
        list(read_corpus([tmp_path / "latin.jsonl"], "auto", CorpusReport()))


def test_tables_that_excel_wrote_are_read_in_their_encoding(tmp_path: Path) -> None:
    for language, encoding, title in (
        ("Russian", "cp1251", "cp1251"), ("Chinese", "gbk", "GB18030 (GBK)"),
        ("Japanese", "cp932", "cp932 (Shift-JIS)"),
        ("German", "cp1252", "cp1252 (Latin-1)"), ("Polish", "cp1250", "cp1250"),
    ):  # fmt: skip
        text, path = TEXTS[language], tmp_path / f"{encoding}.csv"
        path.write_bytes(f'id;title;text\n1;T;"{text}"\n2;U;"{text} 2"\n'.encode(encoding))
        report = CorpusReport()
        assert [each.text for each in read_corpus([path], "auto", report)] == [text, f"{text} 2"]
        assert any(f"{path}: not UTF-8: read as {title}; cells between" in note for note in report.notes)
    path.write_bytes("id;text\n1;Łódź\n".encode("cp1250"))
    with pytest.raises(DataError, match="is not UTF-8"):  # four letters are no evidence
        list(read_corpus([path], "auto", CorpusReport()))
