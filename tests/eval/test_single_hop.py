"""Natural Questions, TriviaQA and PopQA as FlashRAG and BEIR lay them out."""

import json

import pytest

from corag.core.system.files import file_digest
from corag.core.types import Question
from eval.datasets import load_questions
from eval.experiment.questions import QuestionFile
from eval.scoring.scorers import default_scorer

FLASHRAG = {
    "id": "test_0",
    "question": "who wrote the orchard song",
    "golden_answers": ["Ada Tan", "A. Tan", "Ada Tan"],
    "metadata": {"prop": "author"},
}


def test_flashrag_lines(tmp_path):
    file = tmp_path / "nq.jsonl"
    plain = {name: value for name, value in FLASHRAG.items() if name != "metadata"} | {"id": "test_1"}
    file.write_text(json.dumps(FLASHRAG) + "\n" + json.dumps(plain) + "\n")
    first, second = load_questions(str(file), "flashrag")
    assert first == Question("test_0", FLASHRAG["question"], ("Ada Tan", "A. Tan"), kind="author")
    assert (second.kind, default_scorer("flashrag").name) == ("", "flashrag")


@pytest.fixture
def beir(tmp_path):
    """A folder as BEIR has it, whose judgements are the text given."""

    def write(qrels):
        queries = [
            {"_id": "q1", "text": "who wrote it", "metadata": {}},
            {"_id": "q2", "text": "who sang it", "metadata": {"answer": "Ada Tan"}},
            {"_id": "q3", "text": "never judged"},
        ]
        (tmp_path / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
        (tmp_path / "qrels").mkdir(exist_ok=True)
        (tmp_path / "qrels/test.tsv").write_text(qrels)
        return str(tmp_path / "qrels/test.tsv")

    return write


def test_beir_queries_are_those_of_the_judgements_in_their_order(beir):
    file = beir("query-id\tcorpus-id\tscore\nq2\td7\t1\nq1\td1\t0\nq2\td9\t2\n\n")
    second, first = load_questions(file, "beir")
    assert (second.id, second.supporting, second.answers) == ("q2", ("d7", "d9"), ("Ada Tan",))
    assert (first.id, first.supporting, first.answers) == ("q1", (), ())
    assert [question.id for question in load_questions(file, "beir", limit=1)] == ["q2"]


def test_other_queries_to_the_same_judgements_are_other_questions(beir, tmp_path):
    file = beir("q1\td1\t1\n")
    first = QuestionFile(file, "beir").source
    assert first == QuestionFile(file, "beir").source and first["source"] != file_digest(file)
    queries = tmp_path / "queries.jsonl"
    queries.write_text(queries.read_text().replace("who wrote it", "who really wrote it"))
    assert QuestionFile(file, "beir").source["source"] != first["source"]
    beir("q1\td2\t1\n")
    assert QuestionFile(file, "beir").source["source"] != first["source"]
