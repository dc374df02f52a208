import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.core.runs.rows import SavedRow
from corag.core.types import Question
from eval.datasets.pages import page_ids
from eval.scoring.gold import FoundGold, find_gold, gold_places
from eval.scoring.retrieval_metrics import answer_recall, page_recall, r_precision, with_provenance


def supporting_recall(collected, supporting, k):
    return FoundGold(gold_places(collected, supporting), lambda name: (name,)).share(k)


def test_recall_counts_gold_passages_among_the_first_k():
    collected = ["a", "x", "b", "y", "c"]
    assert supporting_recall(collected, ["b", "c", "z"], k=3) == pytest.approx(1 / 3)
    assert supporting_recall(collected, ["b", "c"], k=5) == 1
    assert supporting_recall([], ["b"], k=15) == 0
    assert find_gold(SavedRow.without_answer(Question("1", "Who?"))) is None


def test_a_passage_collected_twice_takes_one_place():
    assert supporting_recall(["a", "a", "b"], ["b"], k=2) == 1
    assert supporting_recall(["b"], ["b", "b", "c"], k=2) == 0.5


@given(
    st.lists(st.sampled_from("abcdef")), st.lists(st.sampled_from("abcdef"), min_size=1), st.integers(0, 8)
)
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


def test_passages_count_for_their_page_once():
    assert page_ids(["12-3", "12#4", "4", "12", "4-0"]) == ["12", "4"]


def test_r_precision_is_that_of_the_set_that_comes_off_best():
    assert r_precision(["1", "9", "2"], [["1", "2"], ["9"]]) == 0.5
    assert r_precision(["9", "1"], [["1", "2"], ["9"]]) == 1
    assert r_precision(["1", "1", "2"], [["1", "2"]]) == 1, "a page found twice is one page"
    assert r_precision([], [["1"]]) == r_precision(["1"], []) == r_precision(["1"], [[]]) == 0


def test_a_set_of_pages_takes_the_place_of_its_last_page():
    gold = [["1", "2"], ["5"], ["7", "9", "11"], ["5"]]
    found = ["2", "5", "7", "33", "1", "9", "44", "88"]
    assert [page_recall(found, gold, k) for k in (1, 2, 3, 5, 8)] == [
        pytest.approx(n / 3) for n in (1, 1, 2, 2, 2)
    ]
    assert page_recall([*found, "11"], gold, 8) == 1
    assert page_recall(["1"], [["1"], []], 5) == 0.5, "an empty set cannot be found"
    assert page_recall([], gold, 5) == page_recall(found, [], 5) == 0


def test_a_page_of_two_sets_serves_both():
    assert page_recall(["1", "2"], [["1"], ["1", "2"]], k=2) == 1
    assert page_recall(["1", "2"], [["1"], ["1", "2"]], k=1) == 0.5


page_sets = st.lists(st.lists(st.sampled_from("abcd"), max_size=3), max_size=3)


@given(st.lists(st.sampled_from("abcdef"), max_size=6), page_sets, st.integers(1, 8))
def test_page_measures_stay_in_range(pages, gold, k):
    assert 0 <= page_recall(pages, gold, k) <= 1
    assert 0 <= r_precision(pages, gold) <= 1
    wanted = [page for group in gold for page in group]
    if all(gold) and gold:
        assert page_recall(wanted, gold, 20) == 1, "all pages found, all places looked at"
        assert r_precision(gold[0], gold) == 1


def test_answers_count_for_kilt_only_if_all_their_pages_come_first():
    measures = {"em": 1.0, "f1": 0.5}
    assert with_provenance(measures, 1.0) == {"r_precision": 1.0, "kilt_em": 1.0, "kilt_f1": 0.5}
    assert with_provenance(measures, 0.5) == {"r_precision": 0.5, "kilt_em": 0.0, "kilt_f1": 0.0}
