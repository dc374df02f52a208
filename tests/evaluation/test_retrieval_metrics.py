import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.retrieval_metrics import answer_recall, supporting_recall


def test_recall_counts_gold_passages_among_the_first_k():
    collected = ["a", "x", "b", "y", "c"]
    assert supporting_recall(collected, ["b", "c", "z"], k=3) == pytest.approx(1 / 3)
    assert supporting_recall(collected, ["b", "c"], k=5) == 1
    assert supporting_recall([], ["b"], k=15) == 0
    assert supporting_recall(collected, [], k=15) is None


def test_a_passage_collected_twice_takes_one_place():
    assert supporting_recall(["a", "a", "b"], ["b"], k=2) == 1
    assert supporting_recall(["b"], ["b", "b", "c"], k=2) == 0.5


@given(st.lists(st.sampled_from("abcdef")), st.lists(st.sampled_from("abcdef"), min_size=1), st.integers(0, 8))
def test_recall_grows_with_k(collected, supporting, k):
    now, later = supporting_recall(collected, supporting, k), supporting_recall(collected, supporting, k + 1)
    assert 0 <= now <= later <= 1


def test_an_answer_must_stand_in_the_text_as_whole_words():
    texts = ["Tromsø lies north.", "He was born in Oslo, Norway."]
    assert answer_recall(texts, ["oslo norway"]) == 1
    assert answer_recall(texts, ["slo"]) == 0
    assert answer_recall(texts, ["Bergen", "The Oslo"]) == 1
    assert answer_recall([], ["Oslo"]) == 0


def test_yes_and_no_cannot_be_looked_for():
    assert answer_recall(["No one knows."], ["no"]) is None
    assert answer_recall(["No one knows."], ["the"]) is None
    assert answer_recall(["No one knows."], ["no", "no one"]) == 1
