import json
import re

import pytest

from corag.core.types import passage_id
from corag.data.records import Note, OddRecordError
from eval.datasets import DATASETS
from eval.datasets.paragraphs import read_pooled
from retrieval.corpora.passages import Reading

OSLO = ("Oslo", "Oslo is a city. It lies in Norway.")
BERGEN = ("Bergen", "Bergen is wet. Very.")
HOTPOTQA = {
    "_id": "q1",
    "question": "Where does Oslo lie?",
    "answer": "Norway",
    "type": "bridge",
    "context": [
        ["Oslo", ["Oslo is a city.", " It lies in Norway."]],
        ["Bergen", ["Bergen is wet. ", "Very."]],
    ],
    "supporting_facts": [["Oslo", 1]],
}


def columns(record):
    """The same record as Hugging Face's `datasets` gives it."""
    context, facts = record["context"], record["supporting_facts"]
    return record | {
        "context": {
            "title": [title for title, _ in context],
            "sentences": [sentences for _, sentences in context],
        },
        "supporting_facts": {
            "title": [title for title, _ in facts],
            "sent_id": [number for _, number in facts],
        },
    }


def objects(text="text", gold="is_supporting"):
    rows = [{"title": title, text: body, gold: title == "Oslo"} for title, body in (OSLO, BERGEN)]
    return {"id": "q1", "paragraphs": rows}


@pytest.mark.parametrize(
    ("dataset", "record"),
    [
        ("hotpotqa", HOTPOTQA),
        ("hotpotqa", columns(HOTPOTQA)),
        ("hotpotqa", objects(gold="is_gold")),
        ("2wikimultihopqa", HOTPOTQA),
        ("2wikimultihopqa", {name: repr(value) for name, value in HOTPOTQA.items()}),
        ("2wikimultihopqa", {name: json.dumps(value) for name, value in HOTPOTQA.items()}),
        ("musique", objects(text="paragraph_text")),
        ("musique", {"paragraphs": {"title": ["Oslo", "Bergen"], "paragraph_text": [OSLO[1], BERGEN[1]],
                                    "is_supporting": [True, False]}}),
        ("popqa", objects()),
    ],
)  # fmt: skip
def test_every_shape_gives_the_same_paragraphs(dataset, record):
    paragraphs = DATASETS[dataset].paragraphs(record, "here")
    assert [(item.passage.title, item.passage.text) for item in paragraphs] == [OSLO, BERGEN]
    assert [item.gold for item in paragraphs] == [True, False]
    assert [item.passage.id for item in paragraphs] == [passage_id(*OSLO), passage_id(*BERGEN)]


def test_a_corpus_holds_each_passage_once(tmp_path):
    file = tmp_path / "dev.json"
    file.write_text(json.dumps([HOTPOTQA, HOTPOTQA | {"_id": "q2", "context": [["Rome", ["Rome is old."]]]}]))
    again = tmp_path / "more.jsonl"
    again.write_text(json.dumps(columns(HOTPOTQA)) + "\n")
    *passages, note = read_pooled([file, again], Reading(), DATASETS["hotpotqa"].paragraphs)
    assert [passage.title for passage in passages] == ["Oslo", "Bergen", "Rome"]
    assert note == Note(f"{again}: 2 paragraphs come with several questions, and are one passage each")


def test_nothing_is_gold_where_the_data_hides_it_or_a_gold_paragraph_is_absent():
    hidden = {name: value for name, value in HOTPOTQA.items() if name != "supporting_facts"}
    retrieved = HOTPOTQA | {"supporting_facts": [["Oslo", 1], ["Norway", 0]]}
    unmarked = {"paragraphs": [{"title": "Oslo", "paragraph_text": "A city."}]}
    for dataset, record in (("hotpotqa", hidden), ("hotpotqa", retrieved), ("musique", unmarked)):
        paragraphs = DATASETS[dataset].paragraphs(record, "here")
        assert paragraphs
        assert not any(item.gold for item in paragraphs)


@pytest.mark.parametrize(
    ("dataset", "change", "message"),
    [
        (
            "hotpotqa",
            {"context": "[['Oslo', "},
            "'context': it holds text that is neither JSON nor a Python literal",
        ),
        (
            "hotpotqa",
            {"context": {"title": ["Oslo"], "sentences": []}},
            "columns of field 'context' differ in length",
        ),
        ("musique", {}, "'paragraphs' is missing; the record has '_id', 'question'"),
    ],
)
def test_a_malformed_record_names_file_record_and_field(tmp_path, dataset, change, message):
    file = tmp_path / "dev.json"
    file.write_text(json.dumps([HOTPOTQA | change]))
    (odd,) = read_pooled([file], Reading(), DATASETS[dataset].paragraphs)
    assert isinstance(odd, OddRecordError) and re.search(message, str(odd))
    assert str(odd).startswith(f"{file}, record 1 (id q1)")
