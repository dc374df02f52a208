"""The corpora of datasets, read under the names that ``corag index --format`` knows them by."""

import json
from dataclasses import replace
from pathlib import Path

import eval.datasets.corpora  # noqa: F401 - registers them
from corag.core.errors import DataError
from corag.core.types import Passage
from retrieval.corpora.formats import read_corpus
from retrieval.corpora.sifting import CorpusReport
from tests.messages import raises_message


def read(path: Path, format: str = "jsonl") -> list[Passage]:
    return list(read_corpus([path], format, CorpusReport()))


def test_kilt_articles_become_a_passage_per_paragraph(tmp_path: Path) -> None:
    path = tmp_path / "kilt.json"
    article = {"_id": "12", "wikipedia_id": "12", "wikipedia_title": "Anarchism"}
    article["text"] = [
        "Anarchism\n",
        "Anarchism is a philosophy.\n",
        "Section::::History.\n",
        "BULLET::::- An era.\n",
        None,
    ]  # type: ignore[assignment]
    path.write_text(json.dumps(article))
    assert read(path, "kilt") == [
        Passage("12-1", "Anarchism", "Anarchism is a philosophy."),
        Passage("12-3", "Anarchism", "BULLET::::- An era."),
    ]


def test_kilt_passages_are_called_by_their_page(tmp_path: Path) -> None:
    """As corag/kilt-corpus has them, whose ids are numbers of rows."""
    path = tmp_path / "kilt-corpus.jsonl"
    records = [
        {
            "id": "0",
            "contents": "Anarchism is a philosophy.\nIt is old.",
            "title": "Anarchism",
            "wikipedia_id": "12",
        },
        {"id": 1, "contents": "Anarchism\nAn era.", "title": "Anarchism", "wikipedia_id": 12},
        {"id": "2", "contents": '"Heroes"\nA song.', "title": '"Heroes"', "wikipedia_id": "7"},
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    contents = [
        Passage("12-0", "Anarchism", "Anarchism is a philosophy.\nIt is old."),
        Passage("12-1", "Anarchism", "An era."),
        Passage("7-2", '"Heroes"', "A song."),
    ]
    assert read(path, "kilt") == contents
    # Under the ids by which corag/multihopqa names them, with the same titles and texts.
    assert read(path) == [replace(passage, id=str(row)) for row, passage in enumerate(contents)]
    path.write_text('{"id": "3", "contents": "x", "title": "T"}\n')
    with raises_message(DataError):
        read(path, "kilt")
