"""What finished cells say: each by itself, and together as Pareto set, curves and choices under a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from corag.core.errors import ConfigError, DataError
from corag.core.runs.rows import SavedRow
from corag.core.system.files import file_digest
from eval.scoring.rows import MEASURES, score_row
from eval.scoring.scorers import choose_scorer
from eval.statistics.intervals import Interval, bootstrap_runs
from eval.statistics.scaling import CellScores, Fit, best_under, fit_curve, pareto_set
from eval.sweeps.cells import OPENED_SECTIONS, Cell, short_value, varying
from eval.tables.columns import Summary, summarise
from eval.tables.means import find_points
from eval.tables.runs import Run, ScoredRuns, read_runs, score_runs

_Scores = TypeVar("_Scores", bound=CellScores)

# Without answer_recall, which needs the passages' texts.
METRICS = {name: title for name, title in MEASURES.items() if name != "answer_recall"}
"""Titles of what cells can be compared by, as far as their questions and scorer have it."""


@dataclass(frozen=True)
class FinishedCell:
    """A finished cell.

    Attributes:
        cell: its settings and questions.
        run: its run, scored.
        options: those that tell it from the others.
        summary: its line of the table.
        scores: tokens and score of its questions, one by one.
    """

    cell: Cell
    run: Run
    options: dict[str, Any]
    summary: Summary
    scores: CellScores

    @property
    def name(self) -> str:
        """The cell's name."""
        return self.cell.name


@dataclass(frozen=True, slots=True, eq=False)
class PointScores(CellScores):
    """The scores of one point: by question the means over its ``cells``, which differ in their seeds only."""

    cells: Sequence[CellScores]

    @property
    def interval(self) -> Interval:
        """The score with an interval, for other seeds too where there are several."""
        values = [each.scores.tolist() for each in self.cells]
        interval = bootstrap_runs([{str(number): one for number, one in enumerate(run)} for run in values])
        assert interval is not None  # all cells have the same questions
        return interval


@dataclass(frozen=True)
class FinishedCells:
    """Finished cells on the same questions, and what a table is made of."""

    cells: Sequence[FinishedCell]
    scored_runs: ScoredRuns


@dataclass(frozen=True)
class Choice:
    """The best cell under a budget: its tokens and score where it was chosen, and where it is reported."""

    budget: int
    cell: str
    chosen_tokens: float
    chosen_score: float
    tokens: float
    score: Interval


@dataclass(frozen=True)
class MethodCurve:
    """The curve of a method's cells: through their Pareto set, or all of them where that does not tell one.

    ``through``: "frontier" or "all". ``fit``: None if neither tells one, for the ``reason``. ``start`` and
    ``end``: the tokens of the first and the last of its points.
    """

    through: str
    fit: Fit | None
    reason: str
    start: float
    end: float


@dataclass(frozen=True)
class Findings:
    """What the cells say together.

    ``frontier``: the points of the Pareto set. ``curves``: of each method with several cells, by
    :func:`curve_name`. ``failed_cells``: cells in which every question failed; they have no part in the rest.
    """

    frontier: list[PointScores]
    curves: dict[str, MethodCurve]
    choices: list[Choice]
    failed_cells: list[str]

    @property
    def pareto(self) -> list[str]:
        """The points of the Pareto set, each by the first of its cells."""
        return [each.name for each in self.frontier]

    @property
    def frontier_cells(self) -> list[str]:
        """All cells of these points."""
        return [cell.name for each in self.frontier for cell in each.cells]


def check_metric(cells: Sequence[Cell], metric: str) -> None:
    """Raise :class:`ConfigError` if a question of a cell cannot have the metric, before it is answered."""
    if metric not in METRICS:
        raise ConfigError(f"metric must be one of {', '.join(METRICS)}, but is '{metric}'.")
    for cell in cells:
        scorer = choose_scorer(cell.config.scorer, cell.config.dataset)
        for question in cell.questions:
            blank_row = SavedRow.without_answer(question)
            values = score_row(blank_row, scorer, cell.config.recall_at, searches=cell.searches).measures
            if metric not in values:
                raise ConfigError(
                    f"cells are to be compared by {METRICS[metric]}, but in the cell '{cell.name}' the "
                    f"question '{question.id}' can have {', '.join(values)} only: choose another 'metric', "
                    "or leave the cell or the question out."
                )


def score_cells(cells: Sequence[Cell], metric: str) -> FinishedCells:
    """Read the cells' runs back from disk and score them by the gold answers that their file holds now.

    Scores are of the questions that have the metric in every cell: by recall, those whose gold passages each
    index has. Raises :class:`DataError` if there are none.
    """
    config, questions = cells[0].config, cells[0].questions
    runs = [run.on(questions) for run in read_runs({cell.name: cell.folder for cell in cells})]
    aliases = file_digest(config.aliases)
    scored_runs = score_runs(runs, config.scorer, config.recall_at, stored_gold=False, aliases=aliases)
    measured = [set(run.measures.get(metric, ())) for run in scored_runs.runs]
    ids = [each.id for each in questions if all(each.id in run for run in measured)]
    if not ids:
        raise DataError(f"no question has {METRICS[metric]} in every cell: choose another 'metric'.")
    differing, finished = varying(cells), []
    for cell, run in zip(cells, scored_runs.runs, strict=True):
        tokens = [run.rows[name].total_usage.total for name in ids]
        values = [run.measures[metric][name] for name in ids]
        scores = CellScores(cell.name, np.array(tokens, dtype=float), np.array(values, dtype=float))
        summary = summarise(cell.name, run.scored_rows, scored_runs.recall_at)
        finished.append(FinishedCell(cell, run, differing[cell.name], summary, scores))
    return FinishedCells(finished, scored_runs)


def weigh_cells(
    test_cells: Sequence[FinishedCell],
    dev_cells: Sequence[FinishedCell],
    budgets: Sequence[int],
    resamples: int,
) -> Findings:
    """Return the Pareto set, the curves, and the best cell under each budget.

    The dev questions decide which is the best, if there are any: chosen and reported on the same questions,
    it would be the luckiest.
    """
    failed_cells = [
        each.name for each in [*test_cells, *dev_cells] if each.summary.failure_count == each.summary.n
    ]
    weighed, dev_weighed = (
        [each for each in cells if each.name not in failed_cells] for cells in (test_cells, dev_cells)
    )
    scores, dev_scores = mean_scores(weighed), mean_scores(dev_weighed)
    by_curve: dict[str, list[FinishedCell]] = {}
    for each in weighed:
        by_curve.setdefault(curve_name(each), []).append(each)
    points = {name: mean_scores(cells) for name, cells in by_curve.items()}
    return Findings(
        frontier(scores),
        {name: fit_cells(cells, resamples) for name, cells in points.items() if len(cells) > 1},
        choose_cells(scores, dev_scores or scores, budgets),
        list(dict.fromkeys(failed_cells)),
    )


def mean_scores(cells: Sequence[FinishedCell]) -> list[PointScores]:
    """Return the scores of the points that cells are, by question the mean over those of one point.

    Each by itself, the best would be the luckiest seed, and a curve would go through what seeds differ in.
    """
    by_name, points = {each.name: each.scores for each in cells}, []
    for name, members in find_points({each.name: each.run.manifest.settings for each in cells}).items():
        scores = [by_name[each] for each in members]
        tokens = np.mean([each.tokens for each in scores], axis=0)
        points.append(PointScores(name, tokens, np.mean([each.scores for each in scores], axis=0), scores))
    return points


def curve_name(each: FinishedCell) -> str:
    """Return what the cells have in common that a curve goes through: method, model and index."""
    opened = [
        f"{option}={short_value(value)}"
        for option, value in each.options.items()
        if value and option.split(".")[0] in OPENED_SECTIONS
    ]
    return " ".join([each.cell.method, *opened])


def frontier(scores: Sequence[_Scores]) -> list[_Scores]:
    """Return the cells that no other of these beats, by rising tokens."""
    places = pareto_set([each.mean_tokens for each in scores], [each.mean_score for each in scores])
    return [scores[place] for place in places]


def fit_cells(cells: Sequence[CellScores], resamples: int) -> MethodCurve:
    """Return the curve of a method's cells."""
    reason = ""
    for through, points in (("frontier", frontier(cells)), ("all", cells)):
        costs = [each.mean_tokens for each in points]
        try:
            fit = fit_curve(points, resamples=resamples)
        except DataError as error:
            reason = str(error)
            continue
        if not fit.at_limit:
            return MethodCurve(through, fit, "", min(costs), max(costs))
        reason = f"b is at its {fit.at_limit} limit, so these {fit.points} points do not tell a curve."
    return MethodCurve("all", None, reason, min(costs), max(costs))


def choose_cells(
    test_cells: Sequence[PointScores], chosen_on: Sequence[CellScores], budgets: Sequence[int]
) -> list[Choice]:
    """Choose the best cell under each budget by ``chosen_on``; report it on ``test_cells``.

    A budget has none if no cell is that cheap, or if the same cell is the best as under the one before.
    """
    by_name = {each.name: each for each in test_cells}
    choices: list[Choice] = []
    for budget in sorted(set(budgets)):
        best = best_under(budget, chosen_on)
        if best and (not choices or choices[-1].cell != best.name):
            point = by_name[best.name]
            chosen = (best.mean_tokens, best.mean_score)
            choices.append(Choice(budget, best.name, *chosen, point.mean_tokens, point.interval))
    return choices
