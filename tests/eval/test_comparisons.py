"""Two runs compared either way round: the same figures with their signs changed, to the last bit."""

import numpy as np
import pytest

from corag.core.errors import ConfigError, DataError
from eval.statistics.comparisons import (
    against_baseline,
    against_each_other,
    compare_either_way,
    disagreements,
    find_leaders,
    mirror,
)
from eval.statistics.intervals import bootstrap_mean, compare_paired
from eval.tables.verdicts import verdict
from tests.messages import raises_message


def scores_of(seed, n, values=None):
    """Scores by question id, of 0 and 1 or of ``values``."""
    draw = np.random.default_rng(seed)
    return {f"q{place}": float(draw.choice(values or [0.0, 1.0])) for place in range(n)}


# Of 40 questions the p-value is drawn, of 8 it is exact.
@pytest.mark.parametrize("n", [2, 8, 40])
@pytest.mark.parametrize("values", [None, [0.0, 0.1, 0.3, 2 / 3, 1.0]])
def test_a_mirrored_comparison_is_the_computed_one(n, values):
    for seed in range(6):
        first, second = scores_of(seed, n, values), scores_of(seed + 100, n, values)
        there, back = compare_either_way(first, second), compare_either_way(second, first)
        assert back == mirror(there) and there == mirror(back)
        assert there.p_value == back.p_value and there.detectable == back.detectable
        assert (there.difference.low, there.difference.high) == (-back.difference.high, -back.difference.low)
        plain = compare_paired(first, second)
        assert there.difference.mean == pytest.approx(plain.difference.mean)
        assert there.p_value == pytest.approx(plain.p_value, abs=0.05)
        assert there == plain or plain.difference.mean <= 0, "an improvement is computed as it is asked for"


def test_as_many_won_as_lost_is_mirrored_too():
    """The differences are the same set either way round, so their order by question decides."""
    gains = np.random.default_rng(4).random(15)
    first = {f"{place:02}": 0.0 if place % 2 else gains[place // 2] for place in range(30)}
    second = {f"{place:02}": gains[place // 2] if place % 2 else 0.0 for place in range(30)}
    there, back = compare_either_way(first, second), compare_either_way(second, first)
    assert there.difference.mean == -back.difference.mean == pytest.approx(0)
    assert compare_paired(first, second) == compare_paired(second, first) == back
    assert there == mirror(back) != back
    same = compare_either_way(first, first)
    assert same == mirror(same) and "-0.0" not in str(mirror(same)), "a difference of nothing has no sign"
    assert mirror(compare_either_way({"a": 1.0}, {"a": 0.0})).difference.low is None


def test_the_order_of_questions_changes_nothing_either_way_round():
    first, second = scores_of(1, 30), scores_of(2, 30)
    assert compare_either_way(dict(reversed(first.items())), second) == compare_either_way(first, second)
    with raises_message(DataError):
        compare_either_way(first | {"z": 1.0}, second)
    with raises_message(DataError):
        compare_either_way(second, first | {"z": 1.0})


def test_every_run_as_the_baseline_is_each_baseline_by_itself():
    runs = {
        name: {"em": scores_of(seed, 30), "f1": scores_of(seed + 9, 30, [0.0, 0.5, 1.0])}
        for seed, name in enumerate("abc")
    }
    runs["c"]["recall"] = runs["b"]["recall"] = scores_of(77, 30)
    found = against_each_other(runs)
    assert list(found) == list(runs)
    for baseline, tests in found.items():
        expected = {(one.run, one.measure): one for one in against_baseline(runs, baseline)}
        assert {(one.run, one.measure): one for one in tests} == expected
    assert len(found["a"]) == 4 and len(found["b"]) == 5
    with raises_message(ConfigError):
        against_each_other({"a": {"em": {"x": 1.0}}, "b": {"f1": {"x": 1.0}}})


def test_disagreements_are_ordered_by_how_far_apart_the_runs_are_in_f1():
    first = {
        "em": {"a": 1.0, "b": 1.0, "c": 0.0, "d": 1.0, "e": 1.0},
        "f1": {"a": 1.0, "b": 1.0, "c": 0.5, "d": 1.0, "e": 1.0},
    }
    second = {
        "em": {"a": 0.0, "b": 0.0, "c": 1.0, "d": 1.0, "e": 0.0},
        "f1": {"a": 0.5, "b": 0.0, "c": 1.0, "d": 1.0, "e": 0.0},
    }
    assert disagreements(first, second) == (["b", "e", "a"], ["c"])
    assert disagreements({"recall": {"a": 1.0}}, {"recall": {"a": 1.0}}) == ([], [])


def scores(*right, n=40):
    """EM by question: right for those below the first number, and for those that are named."""
    return {"em": {str(place): float(place < right[0] or place in right[1:]) for place in range(n)}}


def test_the_best_run_is_told_with_what_is_known_of_the_others():
    runs = {
        "low": scores(2),
        "high": scores(24),
        "near": scores(22),
        "tie": scores(23, 30),
        "none": {"em": {}},
    }
    leading = find_leaders(runs)["em"]
    assert leading.best == ["high", "tie"]
    assert (leading.worse, leading.even, leading.untested) == (["low"], ["near"], [])
    del runs["none"]
    assert leading.tests == len(against_baseline(runs, "high")) == 3
    broken = find_leaders(runs, {"low": [str(place) for place in range(30)]})["em"]
    assert (broken.worse, broken.untested) == ([], ["low"]), "a broken engine is no method that is worse"
    assert find_leaders({"alone": scores(3)}) == {}


def test_runs_that_share_no_gold_passage_are_not_tested_in_recall():
    """Two indexes may have different passages: the figures stand, and nothing is tested."""
    runs = {
        "a": {"em": {"x": 1.0, "y": 0.0}, "recall": {"x": 1.0}},
        "b": {"em": {"x": 1.0, "y": 1.0}, "recall": {"y": 0.5}},
    }
    assert set(find_leaders(runs)) == {"em"}
    assert {one.measure for one in against_baseline(runs, "a")} == {"em"}
    assert {one.measure for one in against_each_other(runs)["b"]} == {"em"}
    with raises_message(ConfigError):
        against_baseline({name: {"recall": measures["recall"]} for name, measures in runs.items()}, "a")


def test_the_best_recall_is_of_the_questions_that_all_runs_share():
    """An index that lacks the passages of hard questions would lead by the easy ones that are left."""
    easy, hard = [str(place) for place in range(20)], [f"hard {place}" for place in range(20)]
    small = dict.fromkeys(easy, 0.5)
    big = dict.fromkeys(easy, 0.8) | dict.fromkeys(hard, 0.0)
    leading = find_leaders({"small": {"recall": small}, "big": {"recall": big}})["recall"]
    assert (leading.best, leading.worse, leading.sizes) == (["big"], ["small"], (20, 20))
    means = {
        name: {"recall": bootstrap_mean(list(each.values()))}
        for name, each in (("small", small), ("big", big))
    }
    assert "big has the highest recall@15, 80.0, significantly" in verdict(means, {"recall": leading}, 15)


def test_a_verdict_says_how_sure_it_is():
    def said(*runs):
        measured = {name: scores(right, n=n) for name, right, n in runs}
        means = {name: {"em": bootstrap_mean(list(each["em"].values()))} for name, each in measured.items()}
        return verdict(means, find_leaders(measured), 15)

    sure = said(("a", 30, 40), ("b", 2, 40))
    assert sure.startswith("a has the highest EM, 75.0 [59.8, 85.8], significantly above the other run on 40")
    noise = said(("a", 1, 4), ("b", 2, 4))
    assert noise.startswith("b has the highest EM, 50.0")
    assert "but no difference in EM is significant on 4 questions" in noise and noise.endswith(
        "Too few questions differ to detect a difference."
    )
    assert said(("a", 0, 20), ("b", 0, 20)).startswith("All 2 runs tie in EM: 0.0 [0.0, ")
    mixed = said(("a", 30, 40), ("b", 28, 40), ("c", 1, 40))
    assert "significantly above c but not above b on 40 questions" in mixed
    tied = said(("a", 30, 40), ("b", 30, 40), ("c", 1, 40))
    assert tied.startswith("a and b have the highest EM, 75.0")
    assert "above all 1 others" not in tied and "significantly above the other run" in tied
    assert "(paired sign-flip tests against a, Holm's rule" in tied
    assert said(("a", 3, 40)) == ""
