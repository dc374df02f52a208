"""What finished cells say: each by itself, and together as Pareto set, curves and choices under a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from core.errors import ConfigError, DataError
from core.options import identity_of
from core.runs.folder import read_rows
from core.runs.rows import SavedRow
from core.types import MEASURING, CandidateAnswer
from eval.scoring.rows import FURTHER, score_row
from eval.scoring.scorers import Scorer, chosen_scorer
from eval.statistics.intervals import Interval, bootstrap_mean
from eval.statistics.scaling import CellScores, Fit, best_under, fit_curve, pareto_set, telling_budgets
from eval.sweeps.cells import Cell, varying
from eval.tables.ceiling import choice_of, oracle_of, sizes_of
from eval.tables.ledger import Spending, spending_of
from eval.tables.table import Summary, summarise

# Without answer_recall, which needs the passages' texts.
MEASURES = {"f1": "F1", "em": "EM", "recall": "recall"} | {
    name: title for name, title in FURTHER.items() if name != "answer_recall"
}
"""What cells can be compared by, as far as their questions and scorer have it."""


@dataclass(frozen=True)
class Reporting:
    """How a sweep is reported, see the options of 'corag sweep'.

    Raises :class:`ConfigError` for numbers that cannot be.
    """

    metric: str
    budgets: Sequence[int]
    resamples: int

    def __post_init__(self) -> None:
        if self.metric not in MEASURES:
            raise ConfigError(f"metric must be one of {', '.join(MEASURES)}, but is '{self.metric}'.")
        if self.resamples < 1 or min(self.budgets, default=1) < 1:
            raise ConfigError(
                f"resamples and budgets must be numbers from 1 on, but they are {self.resamples} and "
                f"{self.budgets}."
            )


@dataclass(frozen=True)
class FinishedCell:
    """A finished cell.

    Attributes:
        cell: its settings and questions.
        options: those that tell it from the others.
        summary: its line of the table.
        scores: tokens and score of its questions, one by one.
        spent: all its tokens, by where they came from.
        searches: how many it made.
        remembered_searches: those that an equal one had made before.
        oracle: what the best of k candidates would score in the sweep's metric, by k; {} for cells that do
            not keep several, and for a metric that answers by themselves do not have.
        passed: the same in EM, pass@k.
    """

    cell: Cell
    options: dict[str, Any]
    summary: Summary
    scores: CellScores
    spent: Spending
    searches: int
    remembered_searches: int
    oracle: Mapping[int, Interval] = field(default_factory=dict)
    passed: Mapping[int, Interval] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The cell's name."""
        return self.cell.name


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
class Findings:
    """What the cells say together.

    ``fits``: through the "pareto" set and through "all" cells; a sentence where there is
    none. ``failed``: cells in which every question failed; they have no part in the rest.
    """

    pareto: list[str]
    fits: dict[str, Fit | str]
    choices: list[Choice]
    failed: list[str]


def check_metric(cells: Sequence[Cell], metric: str) -> None:
    """Raise :class:`ConfigError` if a question of a cell cannot have the metric, before it is answered."""
    for cell in cells:
        scorer = chosen_scorer(cell.config.scorer, cell.config.dataset)
        for question in cell.questions:
            unanswered = SavedRow.unanswered(question)
            values = score_row(unanswered, scorer, cell.config.recall_at, searches=cell.searches).measured
            if metric not in values:
                raise ConfigError(
                    f"cells are to be compared by {MEASURES[metric]}, but in the cell '{cell.name}' the "
                    f"question '{question.id}' can have {', '.join(values)} only: choose another --metric, "
                    "or leave the cell or the question out."
                )


def score_cells(cells: Sequence[Cell], metric: str) -> list[FinishedCell]:
    """Read the cells' runs back from disk and score them."""
    differing = varying(cells)
    return [_score_cell(cell, differing[cell.name], metric) for cell in cells]


def _score_cell(cell: Cell, options: dict[str, Any], metric: str) -> FinishedCell:
    """Score one run by the gold answers that its question file holds now."""
    scorer = chosen_scorer(cell.config.scorer, cell.config.dataset)
    found = read_rows(cell.folder)
    rows = [replace(found[question.id], question=question) for question in cell.questions]
    recall_at = cell.config.recall_at
    tokens = [row.total_usage.total for row in rows]
    scores = [score_row(row, scorer, recall_at, searches=cell.searches).measured[metric] for row in rows]
    stated = identity_of(cell.options)
    candidates = [cell.options.candidates(row, stated) for row in rows]
    exchangeable = cell.options.exchangeable_candidates(stated)
    return FinishedCell(
        cell,
        options,
        summarise(cell.name, rows, scorer, recall_at=recall_at, searches=cell.searches),
        CellScores(cell.name, np.asarray(tokens, dtype=np.float64), np.asarray(scores, dtype=np.float64)),
        sum((each for row in rows for each in _spent(row)), Spending()),
        sum(row.searches for row in rows),
        sum(row.remembered_searches for row in rows),
        _oracle(rows, candidates, scorer, metric, exchangeable=exchangeable),
        _oracle(rows, candidates, scorer, "em", exchangeable=exchangeable),
    )


def _spent(row: SavedRow) -> list[Spending]:
    """Return what answering cost, by role; what was only measured is no part of it."""
    spent = spending_of(row.steps, row.usage)
    return [each for role, each in spent.items() if role != MEASURING]


def _oracle(
    rows: Sequence[SavedRow],
    candidates: Sequence[Sequence[CandidateAnswer]],
    scorer: Scorer,
    metric: str,
    *,
    exchangeable: bool,
) -> Mapping[int, Interval]:
    """Return what the best of k candidates would score; {} if no question has several."""
    if metric not in ("em", "f1") or max(map(len, candidates), default=0) < 2:
        return {}
    choices = [
        choice_of(row, row.question, found, scorer, "em" if metric == "em" else "f1")
        for row, found in zip(rows, candidates, strict=True)
    ]
    return oracle_of(choices, sizes_of(choices, exchangeable=exchangeable))


def find(
    test_cells: Sequence[FinishedCell], dev_cells: Sequence[FinishedCell], options: Reporting
) -> Findings:
    """Find the Pareto set, the curves, and the best cell under each budget.

    The dev questions decide which is the best, if there are any: chosen and reported on the same questions,
    it would be the luckiest.
    """
    failed = [each.name for each in [*test_cells, *dev_cells] if each.summary.failed == each.summary.n]
    scores, of_dev = (
        [each.scores for each in cells if each.name not in failed] for cells in (test_cells, dev_cells)
    )
    frontier = pareto_set([each.mean_tokens for each in scores], [each.mean_score for each in scores])
    through = {"pareto": [scores[index] for index in frontier], "all": scores}
    return Findings(
        [scores[index].name for index in frontier],
        {name: _fit_or_reason(chosen, options.resamples) for name, chosen in through.items()},
        choose(scores, of_dev or scores, options.budgets) if scores else [],
        list(dict.fromkeys(failed)),
    )


def choose(
    test_cells: Sequence[CellScores], chosen_on: Sequence[CellScores], budgets: Sequence[int]
) -> list[Choice]:
    """Choose the best cell under each telling budget by ``chosen_on``; say what it does in ``test_cells``."""
    by_name = {each.name: each for each in test_cells}
    choices = []
    for budget in telling_budgets(budgets, chosen_on):
        best = best_under(budget, chosen_on)
        interval = bootstrap_mean(by_name[best.name].scores.tolist()) if best else None
        if best and interval:
            tokens = by_name[best.name].mean_tokens
            choices.append(Choice(budget, best.name, best.mean_tokens, best.mean_score, tokens, interval))
    return choices


def _fit_or_reason(scores: Sequence[CellScores], resamples: int) -> Fit | str:
    try:
        return fit_curve(scores, resamples=resamples)
    except DataError as error:
        return str(error)
