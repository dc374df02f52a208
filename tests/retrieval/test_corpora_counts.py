"""Readers of corpora account for every record: it is kept, or counted under the reason why it is not."""

import csv
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eval.datasets.corpora  # noqa: F401 - the formats of datasets
from corag.core.errors import DataError
from retrieval.corpora.formats import read_corpus
from retrieval.corpora.sifting import CorpusReport

# Few different values, so that ids and texts repeat.
_TEXT = st.sampled_from(
    ["Oslo is old.", "Ghent", " ", "", 'A "mark" here', '"Marked" at first', "a\ttab, and", "ø"]
)
_ODD = st.sampled_from([None, True, 3, 2.5, {"a": 1}, ["One.", "Two."], [{"a": 1}], []])
_ID = st.sampled_from(["a", "b", "c", 1, 2.0, None, "", [1], "line\nbreak", "a#2"])
_RECORD = st.one_of(
    st.fixed_dictionaries(
        {"text": st.one_of(_TEXT, _ODD)}, optional={"id": _ID, "title": st.one_of(_TEXT, _ODD)}
    ),
    st.fixed_dictionaries({"id": _ID, "contents": _TEXT}),
    st.fixed_dictionaries({"other": _TEXT}),
    st.sampled_from([1, None, [], ["x"], "a text alone"]),
)
_OBJECT = _RECORD.filter(lambda record: isinstance(record, dict))


def _count(text: str, name: str, format: str) -> CorpusReport:
    """Return the report of reading a file that at least one passage is in; an empty one otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        path, report = Path(folder) / name, CorpusReport()
        path.write_text(text, encoding="utf-8")
        try:
            kept = list(read_corpus([path], format, report))
        except DataError:
            assert not report.passages, "what refuses a corpus is that nothing in it can be read"
            return CorpusReport()
    assert len(kept) == len({each.id for each in kept}) == report.passages
    assert all(each.text.strip() and each.id.splitlines() == [each.id] for each in kept)
    assert str(report).startswith(f"{report.passages:,} passages kept")
    for reason in report.odd:
        assert reason in report.sentences()[0]
    return report


def _lines(records: list[Any]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in records)


@settings(max_examples=60, deadline=None)
@given(st.lists(_RECORD, max_size=12), st.integers(0, 3))
def test_json_lines_and_lists(records: list[Any], torn: int) -> None:
    whole = [{"id": "first", "text": "A passage."}, *records]
    report = _count(_lines(whole) + '{"id": \n' * torn, "c.jsonl", "jsonl")
    assert report.records == len(whole) + torn
    assert _count(json.dumps(whole), "c.json", "jsonl").records == len(whole)


Write = Callable[[io.StringIO], Any]
_WRITERS: dict[str, tuple[str, Write]] = {
    "comma": ("c.csv", lambda stream: csv.writer(stream)),
    "tab": ("c.tsv", lambda stream: csv.writer(stream, delimiter="\t")),
    "all quoted": ("c.csv", lambda stream: csv.writer(stream, quoting=csv.QUOTE_ALL)),
}


@pytest.mark.parametrize("writer", _WRITERS)
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from(["a", "b", "7"]), _TEXT, _TEXT), max_size=10),
    short=st.integers(0, 2),
)
def test_tables(writer: str, rows: list[tuple[str, str, str]], short: int) -> None:
    name, make = _WRITERS[writer]
    whole = [("first", "A passage, it is;", "T"), *rows]
    make(stream := io.StringIO()).writerows([("id", "text", "title"), *whole, *[("alone",)] * short])
    report = _count(stream.getvalue(), name, "auto")
    assert report.records == len(whole) + short
    assert report.odd.total() == short


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", "b"]), _TEXT.filter(lambda text: "\t" not in text)), max_size=10
    )
)
def test_a_table_that_nobody_quoted(rows: list[tuple[str, str]]) -> None:
    whole = [("first", 'A "passage".'), ("second", '"This" is another.'), *rows]
    text = "".join(f"{name}\t{text}\n" for name, text in [("id", "text"), *whole])
    report = _count(text, "c.tsv", "dpr")
    assert report.records == len(whole) and not report.odd


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(_OBJECT, st.just({"wikipedia_id": "1", "wikipedia_title": "T", "text": ["T", "x", "y"]}))
    )
)
def test_kilt(records: list[Any]) -> None:
    articles = [{"wikipedia_id": "0", "wikipedia_title": "A", "text": ["A", "First."]}, *records]
    report = _count(_lines(articles), "c.jsonl", "kilt")
    paragraphs = [each["text"][1:] if "wikipedia_id" in each else [each] for each in articles]
    assert report.records == sum(map(len, paragraphs))


@settings(max_examples=40, deadline=None)
@given(st.lists(_OBJECT))
def test_paragraphs_of_questions(records: list[Any]) -> None:
    question = {"id": "q", "question": "?", "paragraphs": [{"title": "T", "paragraph_text": "x"}]}
    report = _count(_lines([question, *records]), "c.jsonl", "musique")
    assert report.records == 1 + len(records) == 1 + report.odd.total()
