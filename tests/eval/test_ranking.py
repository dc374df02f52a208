"""Choosing among candidates: worked by hand, against the obvious way, and what must hold for any numbers."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.statistics.ranking import (
    auc,
    pass_at,
    resample,
    selection_value,
    share_of_gain,
    vote_shares,
    vote_value,
)

NONE = math.nan

# ---- by hand


def test_pass_at_k_is_that_of_the_papers_formula():
    """Of 5 samples 2 are right: 1 - C(3, k) / C(5, k)."""
    values = [0, 1, 0, 1, 0]
    assert [pass_at(values, k) for k in (1, 2, 3, 4, 5)] == pytest.approx([0.4, 0.7, 0.9, 1, 1])
    assert pass_at(values, 16) == 1 and pass_at([0, 0], 2) == 0


def test_the_best_of_several_may_be_worth_a_fraction():
    assert pass_at([0.5, 0.2, 0.8], 2) == pytest.approx((0.5 + 0.8 + 0.8) / 3)


def test_selected_at_k_by_hand():
    scores, values = [0.9, 0.5, 0.5, NONE], [0, 1, 0, 1]
    assert selection_value(scores, values, 1) == pytest.approx(0.5), "one candidate is no choice"
    # Pairs: the first wins three of them; of the equals each half; either of them wins over the one without.
    assert selection_value(scores, values, 2) == pytest.approx((0 + 0 + 0 + 0.5 + 1 + 0) / 6)
    assert selection_value(scores, values, 4) == 0


def test_voted_at_k_by_hand():
    answers, values = ["oslo", "rome", "oslo", ""], [1, 0, 1, 0]
    assert vote_value(answers, values, 4) == 1
    # Pairs: oslo and rome tie twice, oslo twice and once, oslo or rome against a blank, three times.
    assert vote_value(answers, values, 2) == pytest.approx((0.5 + 1 + 1 + 0.5 + 0 + 1) / 6)
    assert vote_value(["", ""], [0, 0], 2) == 0 and vote_value(["", "a"], [0, 1], 2) == 1
    assert vote_shares(answers) == [0.5, 0.25, 0.5, 0]


def test_auc_by_hand():
    scores, right = np.array([0.9, 0.8, 0.8, 0.1, NONE]), np.array([True, False, True, False, False])
    # Right 0.9 beats all three; right 0.8 ties with one wrong and beats two.
    assert auc(scores, right) == pytest.approx((3 + 2.5) / 6)
    assert auc(-scores[:4], right[:4]) == pytest.approx(1 - (2 + 1.5) / 4)
    assert math.isnan(auc(scores, np.ones(5, dtype=bool)))


# ---- the obvious way


def first_of_best(scores, values):
    known = [-math.inf if math.isnan(score) else score for score in scores]
    best = [value for score, value in zip(known, values, strict=True) if score == max(known)]
    return statistics.fmean(best)


def first_most_frequent(answers, values):
    """Mean over all orders in which the candidates may stand."""
    won = []
    for order in itertools.permutations(range(len(answers))):
        counts = [answers.count(answers[place]) if answers[place] else 0 for place in order]
        won.append(values[order[counts.index(max(counts))]])
    return statistics.fmean(won)


def over_subsets(choose, marks, values, k):
    subsets = itertools.combinations(range(len(values)), min(k, len(values)))
    return statistics.fmean(
        choose([marks[at] for at in each], [values[at] for at in each]) for each in subsets
    )


VALUES = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.data(), VALUES, st.integers(1, 7))
def test_expectations_are_means_over_all_subsets(data, values, k):
    n = len(values)
    scores = data.draw(st.lists(st.sampled_from([NONE, -1.0, 0.0, 2.0]), min_size=n, max_size=n))
    assert selection_value(scores, values, k) == pytest.approx(over_subsets(first_of_best, scores, values, k))
    best = over_subsets(lambda _, chosen: max(chosen), values, values, k)
    assert pass_at(values, k) == pytest.approx(best)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=6), st.integers(1, 6))
def test_a_vote_is_the_mean_over_all_subsets_and_orders(data, answers, k):
    # What is answered alike is worth the same.
    worth = {answer: data.draw(st.sampled_from([0.0, 0.5, 1.0])) for answer in sorted(set(answers))}
    values = [worth[answer] for answer in answers]
    assert vote_value(answers, values, k) == pytest.approx(
        over_subsets(first_most_frequent, answers, values, k)
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([NONE, 0.0, 1.0, 2.0]), st.booleans()), min_size=1))
def test_auc_is_the_share_of_pairs(candidates):
    scores, right = map(np.array, zip(*candidates, strict=True))
    known = np.nan_to_num(scores, nan=-9)
    pairs = list(itertools.product(known[right], known[~right]))
    won = sum((good > bad) + (good == bad) / 2 for good, bad in pairs)
    found = auc(scores.astype(float), right)
    assert found == pytest.approx(won / len(pairs)) if pairs else math.isnan(found)


# ---- what must hold


@settings(max_examples=60, deadline=None)
@given(st.data(), st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=16))
def test_no_choice_is_above_the_oracles_and_more_candidates_never_lower_it(data, values):
    scores = data.draw(st.lists(st.floats(-5, 5), min_size=len(values), max_size=len(values)))
    reached = [pass_at(values, k) for k in range(1, len(values) + 1)]
    assert all(more >= fewer - 1e-12 for fewer, more in itertools.pairwise(reached))
    answers = ["right" if value else f"wrong {at % 3}" for at, value in enumerate(values)]
    for k, best in enumerate(reached, 1):
        assert selection_value(scores, values, k) <= best + 1e-12
        assert vote_value(answers, values, k) <= best + 1e-12
    one = statistics.fmean(values)
    assert [reached[0], selection_value(scores, values, 1), vote_value(answers, values, 1)] == [
        pytest.approx(one)
    ] * 3


@given(st.lists(st.tuples(st.floats(-9, 9), st.booleans()), min_size=1, max_size=40))
def test_any_rising_change_of_scores_leaves_the_auc(candidates):
    scores, right = np.array([s for s, _ in candidates]), np.array([r for _, r in candidates])
    _, ranks = np.unique(scores, return_inverse=True)
    one, other = auc(scores, right), auc(ranks.astype(float), right)
    assert one == other or (math.isnan(one) and math.isnan(other))


def test_an_interval_holds_its_figure_and_is_the_same_every_time():
    values = np.array([0.0, 1, 1, 0, 1, 0, 1, 1])
    mean = lambda counts: float(counts @ values / counts.sum())  # noqa: E731
    found = resample(8, mean)
    assert found == resample(8, mean) and found.low < found.mean == 0.625 < found.high
    assert resample(8, lambda counts: math.nan) is None
    assert resample(1, lambda counts: 1.0).low is None


def test_the_share_of_a_gain_has_no_interval_where_there_is_hardly_any():
    least, most = np.array([0.0, 0, 1, 0]), np.array([1.0, 1, 1, 0])
    reached = np.array([1.0, 0, 1, 0])
    assert share_of_gain(reached, least, most, np.ones(4)) == 0.5
    assert math.isnan(share_of_gain(reached, least, least, np.ones(4)))
    rare = np.eye(60)[0]
    assert resample(60, lambda counts: share_of_gain(rare, 0 * rare, rare, counts)).low is None
