import json

import pytest

from corag.core.errors import ConfigError, DataError
from corag.core.types import GoldHop, Question, passage_id
from eval.datasets import load_questions
from eval.datasets.sets.jsonl import question_record
from tests.messages import raises_message

PLAIN = {
    "id": "q1",
    "question": "Who founded the town where Ada was born?",
    "answers": ["Berel Tan", "B. Tan"],
    "supporting": ["p17", "p4"],
    "type": "bridge",
    "hops": 2,
    "decomposition": [
        {"question": "Where was Ada born?", "answer": "Orvale", "passage_id": "p17"},
        {"question": "Who founded Orvale?", "answer": "Berel Tan"},
    ],
}
TWO_WIKI = {
    "_id": "w1",
    "type": "compositional",
    "question": "Where was the director of film Orvale born?",
    "context": [
        ["Orvale (film)", ["Orvale was directed by Ada Tan."]],
        ["Ada Tan", ["Ada Tan was born in Sweden."]],
    ],
    "supporting_facts": [["Orvale (film)", 0], ["Ada Tan", 0]],
    "evidences": [["Orvale", "director", "Ada Tan"], ["Ada Tan", "place of birth", "Sweden"]],
    "answer": "Sweden",
    "answer_id": "Q34",
}
MUSIQUE = {
    "id": "3hop2__1_2_3",
    "question": "Who founded the town where Ada was born?",
    "paragraphs": [
        {"idx": 0, "title": "Ada", "paragraph_text": "Born in Orvale.", "is_supporting": True},
        {"idx": 1, "title": "Other", "paragraph_text": "Nothing.", "is_supporting": False},
        {"idx": 2, "title": "Orvale", "paragraph_text": "Founded by Berel Tan.", "is_supporting": True},
    ],
    "question_decomposition": [
        {"id": 1, "question": "Where was Ada born?", "answer": "Orvale", "paragraph_support_idx": 0},
        {"id": 2, "question": "Who founded #1 ?", "answer": "Berel Tan", "paragraph_support_idx": 2},
    ],
    "answer": "Berel Tan",
    "answer_aliases": ["B. Tan", "Berel Tan"],
    "answerable": True,
}


@pytest.fixture
def write(tmp_path):
    def write_file(name, records):
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return str(path)

    return write_file


def test_plain_questions_are_read_and_written_alike(write):
    (question,) = load_questions(write("q.jsonl", [PLAIN]))
    assert question == Question(
        "q1",
        PLAIN["question"],
        ("Berel Tan", "B. Tan"),
        ("p17", "p4"),
        "bridge",
        2,
        (GoldHop("Where was Ada born?", "Orvale", "p17"), GoldHop("Who founded Orvale?", "Berel Tan")),
    )
    assert load_questions(write("again.jsonl", [question_record(question)])) == [question]


def test_missing_fields_and_repeated_ids_are_errors(write):
    for field in ("id", "question", "answers"):
        record = {name: value for name, value in PLAIN.items() if name != field}
        with raises_message(DataError):
            load_questions(write("q.jsonl", [record]), strict=True)
    with raises_message(DataError):
        load_questions(write("q.jsonl", [PLAIN, PLAIN]), strict=True)
    with raises_message(DataError):
        load_questions(write("q.jsonl", []))


def test_limit_reads_no_further_than_it_must(write):
    path = write("q.jsonl", [PLAIN, PLAIN | {"id": "q2"}, {"broken": True}])
    assert [question.id for question in load_questions(path, limit=2)] == ["q1", "q2"]


def test_2wiki_counts_hops_by_evidence_and_takes_aliases_from_their_file(write):
    path = write("dev.jsonl", [TWO_WIKI])
    other = {"Q_id": "Q35", "aliases": ["DK"], "demonyms": []}
    aliases = write(
        "id_aliases.json", [other, {"Q_id": "Q34", "aliases": ["SE", "Sweden"], "demonyms": ["Swedish"]}]
    )
    (question,) = load_questions(path, "2wikimultihopqa")
    assert (question.answers, question.hops, question.kind) == (("Sweden",), 2, "compositional")
    assert question.supporting == (
        passage_id("Orvale (film)", "Orvale was directed by Ada Tan."),
        passage_id("Ada Tan", "Ada Tan was born in Sweden."),
    )
    (question,) = load_questions(path, "2wikimultihopqa", aliases=aliases)
    assert question.answers == ("Sweden", "SE", "Swedish")


def test_2wiki_sub_answers_are_short_where_a_triple_says_so(write):
    pairs = [
        {"question": "Who directed Orvale?", "answer": "The director of Orvale is Ada Tan."},
        {"question": "When was Ada Tan born?", "answer": "Ada Tan was born on June 5, 1961."},
        {"question": "Is Sweden cold?", "answer": "It is."},
    ]
    triples = [["Ada Tan", "date of birth", "5 June 1961"], ["Orvale", "director", "Ada Tan"]]
    (question,) = load_questions(
        write("q.jsonl", [TWO_WIKI | {"evidences": triples, "qa_pairs": pairs}]), "2wikimultihopqa"
    )
    assert [hop.answer for hop in question.decomposition] == ["Ada Tan", "5 June 1961", "It is."]


def test_musique_brings_aliases_shape_and_decomposition(write):
    (question,) = load_questions(write("dev.jsonl", [MUSIQUE]), "musique")
    ada, orvale = passage_id("Ada", "Born in Orvale."), passage_id("Orvale", "Founded by Berel Tan.")
    assert question.answers == ("Berel Tan", "B. Tan")
    assert (question.kind, question.hops, question.supporting) == ("3hop2", 3, (ada, orvale))
    assert question.decomposition[1] == GoldHop("Who founded #1 ?", "Berel Tan", orvale)
    turned = MUSIQUE | {
        "paragraphs": [each | {"idx": n} for n, each in enumerate(MUSIQUE["paragraphs"])][::-1]
    }
    (again,) = load_questions(write("turned.jsonl", [turned]), "musique")
    assert again.decomposition == question.decomposition, "by their numbers, not by their places"


CORAG = {
    "query": "Who founded the town where Ada was born?",
    "query_id": "2hop__1_2",
    "answers": ["Berel Tan", "B. Tan", "Berel Tan"],
    "context_doc_ids": ["17", "4"],
    "subqueries": ["Where was Ada born? ", "Who founded Orvale?", "Who?"],
    "subanswers": ["Orvale", "No relevant information found", None],
    "predictions": "Berel Tan",
}


def test_corags_own_questions_bring_chains_and_passages(write, capsys):
    broken = CORAG | {"query_id": "b", "subanswers": ["Orvale"]}
    questions = load_questions(write("train.jsonl", [CORAG, broken]), "corag")
    assert [(each.id, each.text, each.answers) for each in questions] == [
        ("2hop__1_2", CORAG["query"], ("Berel Tan", "B. Tan"))
    ]
    assert questions[0].context_ids == ("17", "4")
    assert questions[0].decomposition == (
        GoldHop("Where was Ada born?", "Orvale"),
        GoldHop("Who founded Orvale?", "No relevant information found"),
        GoldHop("Who?", ""),
    )
    assert "3 subqueries and 1 subanswers" in capsys.readouterr().err


ASTRAY = {"question": "W?", "answer": "x", "paragraph_support_idx": 9}


@pytest.mark.parametrize(
    ("dataset", "record", "message"),
    [
        ("musique", MUSIQUE | {"answerable": False}, "unanswerable"),
        ("musique", MUSIQUE | {"question_decomposition": [ASTRAY]},
         "paragraph_support_idx is 9, but there are 3"),
        ("2wikimultihopqa", TWO_WIKI | {"answer": {"a": 3}}, "'answer' must be a non-empty text, but is"),
        ("hotpotqa", {"_id": "h1", "query": "Who?", "answer": "Ada"},
         "'question' must be .* missing; the record has '_id'"),
    ],
)  # fmt: skip
def test_a_wrong_official_record_names_record_and_field(write, dataset, record, message):
    path = write("dev.jsonl", [record])
    with pytest.raises(DataError, match=message) as caught:
        load_questions(path, dataset, strict=True)
    assert f"{path}, line 1" in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "record"), [("hotpotqa", TWO_WIKI), ("2wikimultihopqa", TWO_WIKI), ("musique", MUSIQUE)]
)
def test_a_hidden_answer_of_a_test_split_is_no_answer_however_it_is_written(write, dataset, record):
    hidden = [
        {name: value for name, value in record.items() if name not in ("answer", "answer_aliases")} | change
        for change in ({}, {"answer": None}, {"answer": "", "answer_aliases": []})
    ]
    for one in hidden:
        (question,) = load_questions(write("test.jsonl", [one]), dataset)
        assert question.answers == ()


def test_tables_as_bamboogle_and_popqa_publish_them(tmp_path):
    sheet = tmp_path / "bamboogle.csv"
    sheet.write_text('Question,Answer\n"Who led France, when Ada was born?",Louis\n')
    (question,) = load_questions(str(sheet), "bamboogle")
    assert (question.text, question.answers) == ("Who led France, when Ada was born?", ("Louis",))
    table = tmp_path / "popqa.tsv"
    table.write_text('id\tprop\tquestion\tpossible_answers\n7\tcapital\tCapital of X?\t["Orvale", "Orv"]\n')
    (question,) = load_questions(str(table), "popqa")
    assert (question.id, question.answers, question.kind) == ("7", ("Orvale", "Orv"), "capital")
    table.write_text("id\tprop\n7\n")
    with raises_message(DataError):
        load_questions(str(table), "popqa")


def test_wrong_options_are_sentences(write):
    path = write("q.jsonl", [PLAIN])
    with raises_message(ConfigError):
        load_questions(path, "musiqe")
    with raises_message(ConfigError):
        load_questions(path, limit=-1)
    with raises_message(ConfigError):
        load_questions(path, "musique", aliases="id_aliases.json")
    with raises_message(ConfigError):
        load_questions("hotpotqa/hotpot_qa", "hotpotqa", subset="distractor")
    with raises_message(DataError):
        load_questions("hotpotqa/hotpot_qa", "hotpotqa")


def test_hugging_face_datasets_load_through_their_library(write, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    write("validation.jsonl", [MUSIQUE, MUSIQUE | {"id": "2hop__8_9"}])
    questions = load_questions(str(tmp_path), "musique", "validation")
    assert [(question.id, question.hops) for question in questions] == [("3hop2__1_2_3", 3), ("2hop__8_9", 2)]
    with raises_message(DataError):
        load_questions(str(tmp_path), "musique", "dev")
