"""The Pareto set against its definition, the curve against known coefficients, the choice under a budget by
hand.
"""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.core.errors import DataError
from eval.statistics.intervals import Interval
from eval.statistics.scaling import CellScores, Curve, Estimate, Fit, best_under, fit_curve, pareto_set
from eval.sweeps.findings import MethodCurve, fit_cells
from eval.sweeps.plots import Point, draw_scaling
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


def point(label, group, tokens, score, low, high, is_best):
    return Point(label, group, tokens, Interval(score, low, high, 9), is_best)


def test_a_plot_is_written_in_both_formats(tmp_path):
    points = [
        point("L=1", "corag greedy", 600.0, 0.2, 0.12, 0.3, True),
        point("L=<4>", "corag greedy", 4000.0, 0.18, None, None, False),
        point("N=8", "corag best_of_n & more", 25_000.0, 0.33, 0.2, 0.45, True),
    ]
    fit = Fit(*(Estimate(value, None, None) for value in (3.5, -200.0, -2.2)), 0.9, 4, 40)
    curves = {
        "corag": MethodCurve("all", fit, "", 600, 25_000),
        "ircot": MethodCurve("all", None, "two points", 1, 2),
    }
    files = [tmp_path / "sweep.png", tmp_path / "sweep.svg"]
    draw_scaling(points, files, measure="F1", title="test.jsonl, n = 40", curves=curves)
    assert files[0].read_bytes().startswith(b"\x89PNG") and files[0].stat().st_size > 20_000
    assert ElementTree.fromstring(files[1].read_text()).tag.endswith("svg")
    first = files[1].read_bytes()
    assert b"curve: corag" in first and b"ircot" not in first
    draw_scaling(points[:1], files, measure="EM", title="one cell")
    draw_scaling(points, files, measure="F1", title="test.jsonl, n = 40", curves=curves)
    assert files[1].read_bytes() == first, "the same sweep gives the same file"


def test_a_long_legend_leaves_the_axes_their_height(tmp_path):
    from matplotlib.image import imread

    def height(groups):
        points = [
            point("", f"method {i} bm25+dense", 500.0 + i, 0.2, 0.1, 0.3, i == 0) for i in range(groups)
        ]
        draw_scaling(points, [tmp_path / "sweep.png"], measure="F1", title="n = 100")
        return imread(tmp_path / "sweep.png").shape[0]

    entries = 28  # more in each of two columns, 9 points high with some room, 160 pixels to the inch
    assert height(60) - height(4) >= entries * 9 / 72 * 160


def test_what_spends_nothing_has_a_place_and_every_point_its_name(tmp_path):
    points = [
        point("closed", "closed", 0.0, 0.2, 0.12, 0.3, True),
        point("tuned", "tuned", 813.0, 0.48, 0.4, 0.56, True),
        point("untuned", "untuned", 1700.0, 0.18, 0.11, 0.25, False),
    ]
    file = tmp_path / "sweep.svg"
    draw_scaling(points, [file], measure="F1", title="n = 40")
    texts = re.findall(r"<!-- (.+?) -->", file.read_text())  # beside the outlines of their letters
    assert texts[:3] == ["0", "1k", "2k"] and texts[3].startswith("tokens per question")
    assert {"closed", "tuned", "untuned"} <= set(texts), "in the legend"
    # What has a white edge is drawn without its letters: the names beside the points.
    assert file.read_text().count('id="text_') == len(texts) + len(points)
