"""Official scores of whole prediction files.

The KILT cases have the shape and the figures of KILT's own tests.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.core.errors import DataError
from eval.datasets.exports import musique_lines
from eval.datasets.sets import musique
from eval.scoring.official_scores import (
    evidence_score,
    hotpotqa_scores,
    joint_score,
    kilt_scores,
    musique_scores,
    support_score,
    two_wiki_scores,
)
from tests.eval.runs import saved
from tests.messages import raises_message

GOLD = {
    "_id": "a",
    "answer": "the Orvale river",
    "supporting_facts": [["Ada", 0], ["Orvale", 2]],
    "evidences": [["Ada", "born in", "Orvale"], ["Orvale", "on", "Issel"]],
}


def test_hotpotqa_with_supporting_facts_and_joint():
    predicted = {
        "answer": {"a": "Orvale"},
        "sp": {"a": [["Ada", 0], ["Orvale", 1], ["Orvale", 2], ["Ada", 0]]},
    }
    scores = hotpotqa_scores(predicted, [GOLD])
    assert (scores["em"], scores["f1"], scores["precision"], scores["recall"]) == (
        0,
        pytest.approx(2 / 3),
        1,
        0.5,
    )
    assert (scores["sp_em"], scores["sp_precision"], scores["sp_recall"]) == (0, pytest.approx(2 / 3), 1)
    assert scores["sp_f1"] == pytest.approx(0.8)
    # joint: precision 1 * 2/3, recall 1/2 * 1
    assert scores["joint_f1"] == pytest.approx(2 * (2 / 3) * 0.5 / (2 / 3 + 0.5)) and scores["joint_em"] == 0


def test_hotpotqa_counts_what_is_missing_as_wrong_and_so_the_joint_score():
    predicted = {"answer": {"a": "Orvale River"}, "sp": {}}
    scores = hotpotqa_scores(predicted, [GOLD, GOLD | {"_id": "b"}])
    assert scores == {"em": 0.5, "f1": 0.5, "precision": 0.5, "recall": 0.5}, "no sp, so no joint score"
    both = hotpotqa_scores(
        {"answer": {"a": "Orvale River"}, "sp": {"a": GOLD["supporting_facts"]}}, [GOLD, GOLD | {"_id": "b"}]
    )
    assert both["joint_em"] == both["joint_f1"] == both["sp_em"] == 0.5


def test_columns_of_hugging_face_and_hidden_facts_are_read_too():
    columns = GOLD | {"supporting_facts": {"title": ["Ada", "Orvale"], "sent_id": [0, 2]}}
    predicted = {"answer": {"a": "x"}, "sp": {"a": [["Orvale", 2], ["Ada", 0]]}}
    assert hotpotqa_scores(predicted, [columns])["sp_em"] == 1


def test_what_the_gold_file_lacks_is_left_out_with_the_joint_score():
    predicted = {
        "answer": {"a": "the Orvale river", "b": "x"},
        "sp": {"a": [], "b": []},
        "evidence": {"a": [], "b": []},
    }
    for lacking in (None, [], {"title": [], "sent_id": []}):
        scores = hotpotqa_scores(predicted, [GOLD | {"supporting_facts": lacking}])
        assert scores == {"em": 1, "f1": 1, "precision": 1, "recall": 1}, "two empty lists are no facts found"
    without = {name: value for name, value in GOLD.items() if name != "evidences"}
    scores = two_wiki_scores(predicted, [without])
    assert {name.partition("_")[0] for name in scores} == {"em", "f1", "precision", "recall", "sp"}
    assert scores["sp_recall"] == 0
    # A file that has facts for some questions only: they are the ones whose facts are scored.
    facts = {"answer": predicted["answer"], "sp": {"a": GOLD["supporting_facts"], "b": []}}
    partly = hotpotqa_scores(facts, [GOLD, GOLD | {"_id": "b", "supporting_facts": []}])
    assert (partly["em"], partly["sp_em"], partly["joint_em"]) == (0.5, 1, 1)


def test_2wiki_takes_aliases_for_answers_and_triples_and_ignores_case_of_titles():
    gold = GOLD | {"answer_id": "Q1", "evidences_id": [["Q2", "born in", "Q1"], ["Q1", "on", "Q3"]]}
    aliases = {"Q1": ("Orval", "Orvalian"), "Q3": ("Little Issel",)}
    predicted = {
        "answer": {"a": "orvalian"},
        "sp": {"a": [["ADA", 0], ["orvale", 2]]},
        "evidence": {"a": [["ada.", "born in", "orval"], ["Orvalian", "On", "little issel"]]},
    }
    scores = two_wiki_scores(predicted, [gold], aliases)
    assert {
        name: scores[name] for name in ("em", "sp_em", "evi_em", "joint_em", "joint_f1")
    } == dict.fromkeys(("em", "sp_em", "evi_em", "joint_em", "joint_f1"), 1)
    without = two_wiki_scores(predicted, [gold])
    assert (without["em"], without["evi_em"], without["joint_em"]) == (0, 0, 0)
    with raises_message(DataError):
        two_wiki_scores(predicted, [gold | {"evidences_id": [["Q2", "born in", "Q1"]]}], aliases)


def test_evidence_counts_each_triple_once():
    gold = [[("a", "r", "b"), ("a2", "r", "b")], [("c", "r", "d")]]
    half = evidence_score([("A", "r", "b")], gold)
    assert (half.em, half.precision, half.recall) == (0, 1, 0.5)
    assert evidence_score([], gold).f1 == 0 and evidence_score([], []).em == 1


def test_musique_wants_the_order_of_the_gold_file_and_scores_paragraphs():
    gold = [
        {
            "id": name,
            "answer": "Ada",
            "answer_aliases": ["A. Tan"],
            "paragraphs": paragraphs(True, False, True),
        }
        for name in ("2hop__1", "2hop__2")
    ]
    lines = [
        {
            "id": "2hop__1",
            "predicted_answer": "a tan",
            "predicted_support_idxs": [2, 0, 2],
            "predicted_answerable": True,
        },
        {
            "id": "2hop__2",
            "predicted_answer": "",
            "predicted_support_idxs": [1, 2],
            "predicted_answerable": True,
        },
    ]
    scores = musique_scores(lines, gold)
    assert (scores["em"], scores["f1"], scores["support_em"]) == (0.5, 0.5, 0.5)
    assert scores["support_f1"] == pytest.approx((1 + 0.5) / 2)
    with raises_message(DataError):
        musique_scores(lines[::-1], gold)
    nothing = [{**gold[0], "paragraphs": paragraphs(False)}]
    assert musique_scores([lines[0] | {"predicted_support_idxs": []}], nothing)["support_f1"] == 1


@pytest.mark.parametrize("layout", ["objects", "columns", "text", "is_gold", "no idx"])
def test_musique_reads_numbers_and_flags_in_every_layout_that_is_loaded(layout):
    rows = paragraphs(True, False, True)
    if layout != "no idx":
        rows = [each | {"idx": 10 + each["idx"]} for each in rows]  # numbers that are not the places
    else:
        rows = [{name: value for name, value in each.items() if name != "idx"} for each in rows]
    if layout == "is_gold":
        rows = [
            {name.replace("is_supporting", "is_gold"): value for name, value in each.items()} for each in rows
        ]
    stored = {
        "columns": {name: [each[name] for each in rows] for name in rows[0]},
        "text": json.dumps(rows),
    }.get(layout, rows)
    gold = [{"id": "2hop__1", "question": "Who?", "answer": "Ada", "paragraphs": stored}]
    (question,) = [musique.parse(gold[0], "dev")]
    (line,) = musique_lines({"2hop__1": saved(question, "Ada", question.supporting)}, gold)
    assert line["predicted_support_idxs"] == ([0, 2] if layout == "no idx" else [10, 12])
    assert musique_scores([line], gold)["support_em"] == 1
    broken = [gold[0] | {"paragraphs": [rows[0] | {"idx": "first"}]}]
    with raises_message(DataError):
        musique_scores([line], broken)


def paragraphs(*flags):
    """MuSiQue's paragraphs with these flags."""
    return [
        {"idx": place, "title": f"T{place}", "paragraph_text": f"Text {place}.", "is_supporting": flag}
        for place, flag in enumerate(flags)
    ]


def output(answer, *pages):
    return {"answer": answer, "provenance": [{"wikipedia_id": page} for page in pages]}


def test_kilt_scores_of_its_own_test_of_answers():
    gold = [
        {"id": n, "input": "How?", "output": [output(said, "77")]}
        for n, said in enumerate(["drowning", "drowning", "it was drowning"])
    ]
    guess = [
        {"id": n, "output": [said]}
        for n, said in enumerate(
            [output("drowning", 77), output("a drowning", 999), output("drowning", "999")]
        )
    ]
    scores = kilt_scores(guess, gold)
    expected = {
        "em": 2 / 3,
        "f1": 2.5 / 3,
        "kilt_em": 1 / 3,
        "kilt_f1": 1 / 3,
        "r_precision": 1 / 3,
        "recall@5": 1 / 3,
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    assert (scores["accuracy"], scores["kilt_accuracy"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    perfect = kilt_scores([{"id": record["id"], "output": record["output"]} for record in gold], gold)
    assert set(perfect.values()) == {1.0}


def test_kilt_scores_of_its_own_test_of_pages():
    gold = [
        {"id": "1", "input": "x", "output": [output("t1", 1, "2"), output("t2", 5), output("t3", 7, 9, 11)]}
    ]
    first = kilt_scores([{"id": 1, "output": [output("", 2, 5, "7", 33, 1, 9, 44, "88")]}], gold)
    assert (first["r_precision"], first["recall@5"]) == (0.5, pytest.approx(2 / 3))
    assert first["em"] == first["kilt_em"] == 0, "an empty answer earns nothing"
    second = kilt_scores([{"id": 1, "output": [output("t2", 5)]}], gold)
    assert (second["r_precision"], second["recall@5"], second["kilt_em"]) == (1, pytest.approx(1 / 3), 1)
    filled = [{**gold[0], "output": [*gold[0]["output"], {"answer": "t4", "provenance": []}]}]
    assert kilt_scores([{"id": 1, "output": [output("t2", 5)]}], filled) == second, "an empty set is none"


def test_kilt_refuses_what_its_script_refuses():
    gold = [{"id": "1", "input": "x", "output": [output("t1", 1)]}]
    with raises_message(DataError):
        kilt_scores([], gold)
    for outputs in ([], [output("a"), output("b")], [{"provenance": []}]):
        with raises_message(DataError):
            kilt_scores([{"id": "1", "output": outputs}], gold)


facts = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), unique=True, max_size=5)


@given(facts, facts)
def test_facts_score_in_range_symmetrically_and_the_gold_facts_score_one(predicted, gold):
    there, back = support_score(predicted, gold), support_score(gold, predicted)
    for value in (there.em, there.f1, there.precision, there.recall):
        assert 0 <= value <= 1
    assert (there.f1, there.precision) == (pytest.approx(back.f1), pytest.approx(back.recall))
    assert support_score(gold, gold).em == 1 and support_score(gold, gold).f1 == bool(gold)
    joint = joint_score([there, support_score(gold, gold)])
    assert joint.f1 <= there.f1 + 1e-12
