import numpy as np
import pytest

from corag.core.errors import DataError
from eval.statistics.intervals import (
    bootstrap_mean,
    compare_paired,
    holm,
    paired_power,
    spread,
)
from tests.messages import raises_message


def test_intervals_cover_the_true_mean_at_their_rate():
    draw = np.random.default_rng(7)
    trials = [bootstrap_mean(list(draw.random(60) < 0.4), resamples=1000, seed=trial) for trial in range(400)]
    coverage = np.mean([interval.low <= 0.4 <= interval.high for interval in trials])
    assert 0.91 <= coverage <= 0.98


def test_the_paired_test_rejects_equal_runs_at_its_level_and_finds_a_real_difference():
    draw = np.random.default_rng(11)
    rejected = found = 0
    for trial in range(200):
        first = dict(enumerate(map(float, draw.random(40) < 0.5)))
        same = dict(enumerate(map(float, draw.random(40) < 0.5)))
        better = {question: max(score, float(draw.random() < 0.5)) for question, score in first.items()}
        rejected += compare_paired(first, same, resamples=500, seed=trial).p_value < 0.05
        found += compare_paired(first, better, resamples=500, seed=trial).p_value < 0.05
    assert rejected <= 20  # 10 expected; the test is discrete, so it may reject less often
    assert found >= 160


def test_an_exact_p_value_of_a_small_sample():
    first = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0, "e": 0.5}
    second = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 0.5}
    comparison = compare_paired(first, second)
    assert comparison.p_value == 2 / 8  # three questions changed: all up or all down, of 8 patterns
    assert comparison.difference.mean == pytest.approx(0.6)
    assert compare_paired(first, first).p_value == 1


def test_figures_do_not_depend_on_the_order_of_questions():
    draw = np.random.default_rng(3)
    first, second = ({str(i): float(x) for i, x in enumerate(draw.random(30))} for _ in range(2))
    shuffled = dict(reversed(first.items()))
    assert bootstrap_mean(list(first.values())) == bootstrap_mean(list(shuffled.values()))
    assert compare_paired(first, second) == compare_paired(shuffled, second)


def test_resampling_in_blocks_gives_one_interval_of_the_right_width():
    scores = np.random.default_rng(1).normal(size=9_000)
    interval = bootstrap_mean(list(scores), resamples=1_000)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * scores.std() / 9_000**0.5, rel=0.1)


def test_too_few_questions_have_no_interval():
    assert bootstrap_mean([]) is None
    single = bootstrap_mean([0.5])
    assert (single.mean, single.low, single.high, single.n) == (0.5, None, None, 1)
    pair = compare_paired({"a": 0.0}, {"a": 1.0}).difference
    assert (pair.mean, pair.low, pair.high, pair.n) == (1.0, None, None, 1)


def test_equal_values_have_the_exact_interval():
    """The rule of three, and more exactly 1 - 0.025 ** (1 / n), as far as a fraction or a difference can
    go.
    """
    unseen = 1 - 0.025 ** (1 / 50)
    never, always, half = (bootstrap_mean([value] * 50) for value in (0.0, 1.0, 0.5))
    assert (never.low, never.high) == (0.0, pytest.approx(unseen))
    assert (always.low, always.high) == (pytest.approx(1 - unseen), 1.0)
    assert (half.low, half.high) == (pytest.approx(0.5 - unseen / 2), pytest.approx(0.5 + unseen / 2))
    scores = dict.fromkeys(range(50), 0.5)
    same = compare_paired(scores, scores)
    assert (same.difference.low, same.difference.high) == (pytest.approx(-unseen), pytest.approx(unseen))
    assert same.p_value == 1


@pytest.mark.parametrize("questions", [2, 5, 6, 10, 40])
@pytest.mark.parametrize("step", [0.05, 1 / 3, 1.0])
def test_equal_differences_are_significant_where_their_interval_leaves_out_zero(questions, step):
    """All of five differ alike by chance in 1 of 16 samples, all of six in 1 of 32."""
    base = dict.fromkeys(range(questions), 0.0)
    for difference in (step, -step):
        compared = compare_paired(base, dict.fromkeys(base, difference))
        low, high = compared.difference.low, compared.difference.high
        assert -1 <= low <= difference <= high <= 1
        assert (low > 0 or high < 0) == (compared.p_value < 0.05) == (questions > 5)


def test_intervals_of_rare_successes_cover_their_rate():
    draw = np.random.default_rng(31)
    trials = [bootstrap_mean(list(draw.random(60) < 0.02), resamples=500, seed=trial) for trial in range(300)]
    assert np.mean([trial.mean == 0 for trial in trials]) > 0.2, "many samples have none at all"
    assert np.mean([trial.low <= 0.02 <= trial.high for trial in trials]) >= 0.93


@pytest.mark.parametrize(("questions", "rate"), [(30, 0.12), (60, 0.06), (60, 0.09), (100, 0.04), (60, 0.4)])
def test_intervals_of_right_and_wrong_cover_every_rate(questions, rate):
    """A bootstrap of these holds the rate in 87%, 87%, 90%, 91% and 95% of all samples."""
    from scipy.stats import binom

    covered = 0.0
    for right in range(questions + 1):
        interval = bootstrap_mean([0.0] * (questions - right) + [1.0] * right)
        covered += binom.pmf(right, questions, rate) * (interval.low <= rate <= interval.high)
    assert 0.93 <= covered <= 0.98


def test_the_interval_of_right_and_wrong_is_wilsons_and_of_fractions_a_bootstrap():
    # (r + z*z/2 -+ z * sqrt(r * (n - r) / n + z*z/4)) / (n + z*z) with r = 1, n = 10, z = 1.96
    one = bootstrap_mean([1.0] + [0.0] * 9)
    assert (one.mean, one.n) == (0.1, 10)
    assert (one.low, one.high) == (pytest.approx(0.01788, abs=1e-5), pytest.approx(0.40415, abs=1e-5))
    fraction = bootstrap_mean([0.5] + [0.0] * 9)
    assert fraction.low == 0 and fraction.high == pytest.approx(0.15)


@pytest.mark.parametrize(
    "differences",
    [
        [1 / 3, 1 / 3, 1 / 3, -1.0],
        [0.1, 0.2, -0.3],
        [0.7, -0.1, -0.2, -0.4, 0.5, -0.5],
        [0.1, 0.2, -0.3] * 7,  # too many for all patterns: resampled
    ],
)
def test_no_difference_on_average_has_the_p_value_1(differences):
    nothing = dict.fromkeys(range(len(differences)), 0.0)
    assert compare_paired(nothing, dict(enumerate(differences))).p_value == 1.0


def test_an_exact_p_value_of_fractions_counts_ties():
    # 1/3 + 2/3 and 1 tie: of 8 patterns, the two of |sum| 2 are as far out as the observed one.
    ours, theirs = dict.fromkeys("abc", 0.0), {"a": 1 / 3, "b": 2 / 3, "c": 1.0}
    assert compare_paired(ours, theirs).p_value == 2 / 8
    assert compare_paired(ours, theirs | {"c": -1.0}).p_value == 1.0


def test_runs_on_different_questions_are_refused():
    with raises_message(DataError):
        compare_paired({"a": 1.0, "b": 0.0}, {"a": 1.0})
    with raises_message(DataError):
        compare_paired({"a": 1.0}, {"a": 1.0, "c": 0.0})
    with raises_message(DataError):
        compare_paired({}, {})
    with raises_message(DataError):
        compare_paired({"a": 1.0}, {"a": float("nan")})


@pytest.mark.parametrize("mean", [bootstrap_mean, spread])
def test_a_mean_of_what_is_no_number_is_refused(mean):
    with raises_message(DataError):
        mean([1, 0, float("nan")])


def test_holm_adjusts_and_keeps_order():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_intervals_of_paired_differences_cover_at_their_rate():
    draw = np.random.default_rng(13)
    covered = 0
    for trial in range(300):
        first = draw.random(50)
        second = np.clip(first + draw.normal(0.1, 0.3, 50), -9, 9)
        scores = (dict(enumerate(map(float, values))) for values in (first, second))
        difference = compare_paired(*scores, resamples=600, seed=trial).difference
        covered += difference.low <= 0.1 <= difference.high
    assert 0.90 <= covered / 300 <= 0.98


@pytest.mark.parametrize("questions", [12, 80])
def test_a_difference_of_the_detectable_size_is_found_four_times_out_of_five(questions):
    """The note says from which difference on: one of just that size must be significant in about 80% of
    repetitions.
    """
    from scipy.stats import ttest_1samp

    draw = np.random.default_rng(17)
    size = paired_power(_standardised(draw.normal(size=questions)))
    samples = draw.normal(size, 1.0, (3000, questions))
    assert np.mean(ttest_1samp(samples, 0.0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.04)
    half = draw.normal(size / 2, 1.0, (3000, questions))
    assert np.mean(ttest_1samp(half, 0.0, axis=1).pvalue < 0.05) < 0.4


def _standardised(values):
    return (values - values.mean()) / values.std(ddof=1)


def test_our_own_test_has_the_power_that_the_note_promises():
    draw = np.random.default_rng(19)
    size = paired_power(_standardised(draw.normal(size=40)))
    trials = [draw.normal(size, 1.0, 40) for _ in range(250)]
    nothing = dict.fromkeys(range(40), 0.0)
    found = [
        compare_paired(nothing, dict(enumerate(map(float, values))), resamples=400).p_value < 0.05
        for values in trials
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=0.09)


def test_the_difference_that_is_likely_to_be_seen_by_hand():
    # 200 questions, of which half changed by 1: (1.97 + 0.84) * sqrt(0.25 / 200)
    assert paired_power([float(i % 2) for i in range(200)]) == pytest.approx(0.1, abs=0.005)


def test_four_times_the_questions_show_half_the_difference():
    values = list(np.random.default_rng(29).normal(size=100))
    assert paired_power(values * 4) == pytest.approx(paired_power(values) / 2, rel=0.02)
    assert paired_power(values, power=0.9) > paired_power(values) > paired_power(values, level=0.2)


def test_without_spread_nothing_can_be_said_of_power():
    assert paired_power([0.5]) is None and paired_power([0.0] * 50) is None
    same = {"a": 1.0, "b": 0.0}
    assert compare_paired(same, same).detectable is None


def test_five_questions_that_differ_tell_no_power():
    assert paired_power([1.0] * 5 + [0.0] * 5) is None
    assert paired_power([1.0] * 6 + [0.0] * 4) is not None


def test_mean_and_deviation_over_runs():
    three = spread([0.4, 0.5, 0.6])
    assert (three.mean, three.deviation, three.n) == (pytest.approx(0.5), pytest.approx(0.1), 3)
    assert spread([0.4]).deviation is None
    with raises_message(DataError):
        spread([])
