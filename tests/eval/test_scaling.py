"""The Pareto set against its definition, the curve against known coefficients, the choice under a budget by
hand.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.core.errors import DataError
from eval.statistics.scaling import CellScores, Curve, best_under, fit_curve, pareto_set
from eval.sweeps.findings import fit_cells
from tests.messages import raises_message


def cell(name, tokens, scores):
    return CellScores(name, np.asarray(tokens, dtype=float), np.asarray(scores, dtype=float))


def beats(one, other):
    """The definition: no dearer, no worse, and better in one."""
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6)), min_size=1, max_size=25))
def test_the_pareto_set_is_what_nothing_beats(points):
    found = pareto_set(*zip(*points, strict=True))
    assert sorted(found) == [
        i for i, point in enumerate(points) if not any(beats(other, point) for other in points)
    ]
    assert [points[i][0] for i in found] == sorted(points[i][0] for i in found), "by rising tokens"


TRUTH = Curve(6.0, 1500.0, -20.0)
TOKENS = [500, 1000, 2000, 3000, 5000, 8000, 16000, 32000]


def drawn(trial, questions=60):
    """Cells on the true curve; questions differ in ease, alike in all cells, and in tokens."""
    draw = np.random.default_rng(trial)
    ease = draw.normal(0, 8, questions)
    return [
        cell(
            str(x),
            draw.normal(x, x / 10, questions),
            (TRUTH.at(np.array(x)) + ease + draw.normal(0, 2, questions)) / 100,
        )
        for x in TOKENS
    ]


def test_the_curve_recovers_its_coefficients_within_their_intervals():
    covered = np.zeros(3)
    for trial in range(40):
        fit = fit_curve(drawn(trial), resamples=60, seed=trial)
        truth = zip((fit.a, fit.b, fit.c), (TRUTH.a, TRUTH.b, TRUTH.c), strict=True)
        covered += [estimate.low <= value <= estimate.high for estimate, value in truth]
        assert fit.r_squared > 0.98 and (fit.points, fit.questions, fit.at_limit) == (8, 60, "")
        assert TRUTH.a / 2 < fit.a.low < fit.a.high < TRUTH.a * 2, (
            "none is so wide that it would hold anything"
        )
    assert min(covered) >= 34, "each at about its rate of 95%, less what 60 resamples lack"


def test_without_noise_the_curve_is_exact_and_one_question_has_no_interval():
    fit = fit_curve([cell(str(x), [x], [TRUTH.at(np.array(x)) / 100]) for x in TOKENS])
    assert (fit.a.value, fit.b.value, fit.c.value) == pytest.approx((TRUTH.a, TRUTH.b, TRUTH.c), rel=1e-4)
    assert fit.a.low is None and fit.r_squared == pytest.approx(1)


def test_one_cell_that_failed_does_not_bend_the_curve():
    cells = drawn(0)
    without = fit_curve(cells[:5] + cells[6:], resamples=1)
    cells[5] = cell("failed", cells[5].tokens, np.zeros(60))
    fit = fit_curve(cells, resamples=1)
    at = np.array([700.0, 4000.0, 30000.0])
    assert np.abs(fit.curve.at(at) - without.curve.at(at)).max() < 1.0


def test_the_curve_does_not_depend_on_how_the_scores_of_a_level_cell_are_rounded():
    """Of cells whose questions all score alike, rounding leaves a spread that tells of no chance at all."""
    bends = np.array([0.0, 0.25, -0.25, 0.5, 0.0, -0.5, 0.25, 0.0])
    scores = [round(64 * float(value)) / 6400 for value in TRUTH.at(np.array(TOKENS)) + bends]
    level = [cell(str(x), [x] * 4, [score] * 4) for x, score in zip(TOKENS, scores, strict=True)]
    jitter = 1e-16 * np.array([1, -1, 2, -2])
    rounded = [cell(each.name, each.tokens, each.scores * (1 + 10 * jitter)) for each in level]
    assert all(each.scores.std() > 0 for each in rounded)
    curves = [fit_curve(cells, resamples=1).curve for cells in (level, rounded)]
    at = np.array(TOKENS, dtype=float)
    assert curves[1].at(at) == pytest.approx(curves[0].at(at), abs=1e-3)


def test_a_score_that_is_no_number_never_wins():
    nan = float("nan")
    assert pareto_set([1, 2, 3], [nan, 0.2, 0.3]) == [1, 2]
    assert pareto_set([1, 2, 3], [0.1, nan, 0.3]) == [0, 2]
    cells = [cell("nan", [100], [nan]), cell("plain", [100], [0.1])]
    assert best_under(1000, cells).name == best_under(1000, cells[::-1]).name == "plain"
    assert best_under(1000, cells[:1]) is None


def test_a_cell_whose_score_is_no_number_has_no_part_in_the_curve():
    cells, wrong = drawn(0), np.full(60, 0.5)
    wrong[7] = np.nan
    fit = fit_curve([*cells, cell("nan", cells[0].tokens + 17, wrong)], resamples=2)
    assert fit == fit_curve(cells, resamples=2) and fit.points == len(cells)
    with raises_message(DataError):
        fit_curve([*cells[:3], cell("nan", cells[0].tokens + 17, wrong)])


def test_points_that_do_not_tell_b_say_so():
    straight = [cell(str(x), [x, x], [x / 1e5, x / 1e5]) for x in TOKENS]
    fit = fit_curve(straight, resamples=5)
    assert fit.at_limit == "upper" and fit.r_squared > 0.99
    curve = fit_cells(straight, 5)
    assert curve.fit is None and "do not tell a curve" in curve.reason
    level = fit_curve([cell(str(x), [x, x], [0.2, 0.4]) for x in TOKENS], resamples=5)
    assert level.a.value == pytest.approx(0, abs=1e-6) and level.r_squared is None
    assert level.curve.at(np.array([1000.0])) == pytest.approx([30.0])


def test_all_x_stay_inside_the_logarithm():
    steep = [cell(str(x), [x, x], [0.0, 0.0] if x == 500 else [0.3, 0.3]) for x in TOKENS]
    fit = fit_curve(steep, resamples=5)
    assert fit.b.value > -500 and fit.at_limit == "lower"
    assert np.isfinite(fit.curve.at(np.array([500.0]))).all()


def test_too_few_points_and_uneven_cells_are_refused():
    three = [cell(str(x), [x], [0.1]) for x in (1, 2, 3, 3)]
    with raises_message(DataError):
        fit_curve(three)
    with raises_message(DataError):
        fit_curve([cell("a", [1, 2], [0, 1]), cell("b", [1], [0])])


CELLS = [
    cell("cheap", [900, 1100], [0.2, 0.2]),
    cell("dear", [6000, 8000], [0.5, 0.5]),
    cell("as good for less", [5000, 5000], [0.4, 0.6]),
    cell("dearest", [40_000, 40_000], [0.9, 0.1]),
]


@pytest.mark.parametrize(
    ("budget", "name"),
    [(999, None), (1000, "cheap"), (4999, "cheap"), (5000, "as good for less"), (10**6, "as good for less")],
)
def test_the_best_under_a_budget_is_the_cheapest_of_equals(budget, name):
    best = best_under(budget, CELLS)
    assert (best and best.name) == name
