"""The real question files load whole, and their gold passages are in the corpora pooled from them."""

import pytest

from corag.core.errors import ConfigError, DataError
from corag.core.types import Passage, passage_id
from corag.data.fields import record_id, unpack
from corag.data.records import Record
from eval.datasets import DATASETS, load_questions
from eval.datasets.corpora import index_manifest  # registers the formats
from eval.datasets.exports import musique_lines
from eval.datasets.paragraphs import read_pooled, supporting_facts
from eval.datasets.report import QuestionReport
from eval.scoring.official_scores import hotpotqa_scores, musique_scores, two_wiki_scores
from eval.scoring.scorers import default_scorer
from retrieval.config import IndexConfig
from retrieval.corpora.formats import refuse_other_records
from retrieval.corpora.passages import Reading
from retrieval.index.build import build_index
from tests.data import data_folder
from tests.eval.runs import saved

FILES = [
    ("hotpotqa", "hotpotqa/train500.jsonl", 500, 4968),
    ("hotpotqa", "hotpotqa/train100.json", 100, 994),
    ("hotpotqa", "hotpotqa/dev_distractor_a300.jsonl", 300, 2958),
    ("2wikimultihopqa", "2wikimultihopqa/train500_decomposed.json", 500, 3112),
    ("2wikimultihopqa", "2wikimultihopqa/dev500.columns.json", 500, 3301),
    ("musique", "musique/train100.json", 100, 1890),
    ("musique", "musique/dev200.json", 200, 3141),
    ("popqa", "popqa/popqa1000.json", 1000, 1475),
]


def raw(dataset, path):
    """The raw records of an official file."""
    return [each.fields for each in DATASETS[dataset].read_file(path) if isinstance(each, Record)]


@pytest.mark.parametrize(("dataset", "file", "questions", "passages"), FILES)
def test_questions_and_their_pooled_corpus_agree(dataset, file, questions, passages):
    path = data_folder() / file
    loaded = load_questions(str(path), dataset)
    items = read_pooled([path], Reading(), DATASETS[dataset].paragraphs, DATASETS[dataset].read_file)
    corpus = {item.id for item in items if isinstance(item, Passage)}
    assert (len(loaded), len(corpus)) == (questions, passages)
    for question in loaded:
        assert len(question.supporting) >= 2
        assert set(question.supporting) <= corpus
        assert {hop.passage_id for hop in question.decomposition} <= {*question.supporting, ""}
        assert default_scorer(dataset).score(question.answers[-1], question.answers).f1 == 1


def test_bamboogle_has_125_questions_without_passages():
    questions = load_questions(str(data_folder() / "bamboogle/test125.jsonl"), "bamboogle")
    assert (len(questions), {question.supporting for question in questions}) == (125, {()})


def test_a_pooled_corpus_is_the_published_one():
    folder = data_folder() / "hotpotqa"
    published = {
        passage_id(row["title"], row["text"]) for row in raw("hotpotqa", folder / "train500_corpus4968.jsonl")
    }
    items = read_pooled([folder / "train500.jsonl"], Reading(), DATASETS["hotpotqa"].paragraphs)
    assert {item.id for item in items if isinstance(item, Passage)} == published


def test_predictions_that_are_the_gold_answers_score_one_on_the_official_files():
    folder = data_folder()
    hotpotqa = raw("hotpotqa", folder / "hotpotqa/train100.json")
    two_wiki = raw("2wikimultihopqa", folder / "2wikimultihopqa/dev500.columns.json")
    for records, score in ((hotpotqa, hotpotqa_scores), (two_wiki, two_wiki_scores)):
        perfect = {
            "answer": {record_id(record): record["answer"] for record in records},
            "sp": {record_id(record): supporting_facts(record, "gold") for record in records},
            "evidence": {record_id(record): unpack(record.get("evidences") or []) for record in records},
        }
        assert set(score(perfect, records).values()) == {1.0}
    musique = raw("musique", folder / "musique/dev200.json")
    questions = load_questions(str(folder / "musique/dev200.json"), "musique")
    rows = {
        question.id: saved(question, question.answers[-1], ["stray", *question.supporting])
        for question in reversed(questions)
    }
    scores = musique_scores(list(musique_lines(rows, musique)), musique)
    assert (scores["em"], scores["f1"]) == (1, 1)
    # A paragraph may stand twice among a question's own.
    assert scores["support_recall"] == 1 and scores["support_em"] > 0.97


@pytest.mark.parametrize(("dataset", "file"), [each[:2] for each in FILES])
def test_an_official_file_without_its_name_is_recognised_as_questions_and_as_a_corpus(
    dataset, file, tmp_path
):
    """Scored by another rule, and ten paragraphs as one passage, both in silence."""
    path = str(data_folder() / file)
    report = QuestionReport(path)
    try:
        load_questions(path, limit=3, report=report)
    except DataError:  # the release in columns is no file of records
        assert file.endswith("columns.json")
    assert f"this is the format of {dataset}: add dataset={dataset}" in [*report.remarks, *report.drops]
    named = QuestionReport(path)
    load_questions(path, dataset, limit=3, report=named)
    assert not named.remarks
    config = IndexConfig(corpus=[path], out=str(tmp_path / "index"))
    with pytest.raises(ConfigError, match=f"add format={dataset},"):
        build_index(config, lambda _: None)
    assert index_manifest(config.out) is None


def test_passages_and_questions_of_ones_own_are_no_official_files(tmp_path):
    corpus = data_folder() / "hotpotqa/train500_corpus4968.jsonl"
    refuse_other_records([corpus], Reading())
    own = tmp_path / "own.jsonl"
    own.write_text('{"id": "1", "question": "Who?", "answers": ["Ana"], "type": "bridge", "level": "easy"}\n')
    report = QuestionReport(str(own))
    load_questions(own, report=report)
    assert not any("--dataset" in text for text in report.remarks)
