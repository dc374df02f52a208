"""What finished cells say: each by itself, and together as Pareto set, curves and choices under a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from corag.core.errors import ConfigError, DataError
from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import Manifest
from corag.core.runs.provenance import settings_of
from corag.core.runs.rows import SavedRow
from corag.core.types import MEASURING, CandidateAnswer, Question
from eval.datasets.corpora import index_aliases
from eval.experiment.gold import name_gold
from eval.scoring.rows import MEASURES, score_row, score_rows
from eval.scoring.scorers import Scorer, choose_scorer
from eval.statistics.intervals import Interval, bootstrap_mean
from eval.statistics.scaling import CellScores, Fit, best_under, fit_curve, informative_budgets, pareto_set
from eval.sweeps.cells import OPENED_SECTIONS, Cell, short_value, varying
from eval.tables.candidates import candidate_set, oracle_values, subset_sizes
from eval.tables.columns import Summary, summarise
from eval.tables.ledger import Spending, spending_by_role
from eval.tables.means import find_points

# Without answer_recall, which needs the passages' texts.
METRICS = {"f1": MEASURES["f1"]} | {
    name: title for name, title in MEASURES.items() if name != "answer_recall"
}
"""Titles of what cells can be compared by, as far as their questions and scorer have it."""


@dataclass(frozen=True)
class Reporting:
    """How a sweep is reported, see the options of 'corag sweep'.

    Raises :class:`ConfigError` for numbers that cannot be.
    """

    metric: str
    budgets: Sequence[int]
    resamples: int

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ConfigError(f"metric must be one of {', '.join(METRICS)}, but is '{self.metric}'.")
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
        manifest: of its run.
        options: those that tell it from the others.
        summary: its line of the table.
        scores: tokens and score of its questions, one by one.
        spending: all its tokens, by where they came from.
        searches: how many it made.
        remembered_searches: those that an equal one had made before.
        oracle: what the best of k candidates would score in the sweep's metric, by k; {} for cells that do
            not keep several, and for a metric that answers by themselves do not have.
        pass_at: the same in EM, pass@k.
    """

    cell: Cell
    manifest: Manifest
    options: dict[str, Any]
    summary: Summary
    scores: CellScores
    spending: Spending
    searches: int
    remembered_searches: int
    oracle: Mapping[int, Interval] = field(default_factory=dict)
    pass_at: Mapping[int, Interval] = field(default_factory=dict)

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

    ``fits``: of each method with several cells, by :func:`curve_name`, the curve through "all" of its cells
    and through its own "pareto" set; a sentence where there is none. ``failed_cells``: cells in which every
    question failed; they have no part in the rest.
    """

    pareto: list[str]
    fits: dict[str, dict[str, Fit | str]]
    choices: list[Choice]
    failed_cells: list[str]


def check_metric(cells: Sequence[Cell], metric: str) -> None:
    """Raise :class:`ConfigError` if a question of a cell cannot have the metric, before it is answered."""
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


def score_cells(cells: Sequence[Cell], metric: str) -> list[FinishedCell]:
    """Read the cells' runs back from disk and score them."""
    differing = varying(cells)
    return [_score_cell(cell, differing[cell.name], metric) for cell in cells]


def _score_cell(cell: Cell, options: dict[str, Any], metric: str) -> FinishedCell:
    """Score one run by the gold answers that its question file holds now."""
    scorer = choose_scorer(cell.config.scorer, cell.config.dataset)
    by_id, manifest = read_rows(cell.folder), Manifest.read(cell.folder)
    questions = _with_indexed_gold(cell.questions, by_id, metric, manifest.last.index)
    rows = [replace(by_id[question.id], question=question) for question in questions]
    scored_rows = score_rows(
        rows,
        scorer,
        cell.config.recall_at,
        searches=cell.searches,
        aliases=index_aliases(manifest.last.index),
    )
    tokens = [row.total_usage.total for row in rows]
    scores = [each.scores.measures[metric] for each in scored_rows]
    options_made_with = settings_of(cell.options)
    kind = cell.config.find_method(cell.method).candidates
    candidates = [kind.load(row, options_made_with) for row in rows]
    exchangeable = kind.exchangeable(options_made_with)
    return FinishedCell(
        cell,
        manifest,
        options,
        summarise(cell.name, scored_rows, cell.config.recall_at),
        CellScores(cell.name, np.asarray(tokens, dtype=np.float64), np.asarray(scores, dtype=np.float64)),
        sum((each for row in rows for each in _spending(row)), Spending()),
        sum(row.searches for row in rows),
        sum(row.remembered_searches for row in rows),
        _oracle(rows, candidates, scorer, metric, exchangeable=exchangeable),
        _oracle(rows, candidates, scorer, "em", exchangeable=exchangeable),
    )


def _with_indexed_gold(
    questions: Sequence[Question], rows: Mapping[str, SavedRow], metric: str, folders: Sequence[str]
) -> list[Question]:
    """Return questions with gold passages as the index calls them that their rows were answered with.

    A question has none if the index lacks one of them. Where cells are compared by recall it keeps all, since
    every cell must have every question.
    """
    results = [replace(each, supporting=rows[each.id].question.supporting) for each in questions]
    if metric != "recall":
        return results
    without_gold = [each for each, result in zip(questions, results, strict=True) if not result.supporting]
    by_id = {each.id: each for each in name_gold(without_gold, folders)}
    return [by_id.get(each.id, each) for each in results]


def _spending(row: SavedRow) -> list[Spending]:
    """Return what answering cost, by role; what was only measured is no part of it."""
    by_role = spending_by_role(row.steps, row.usage)
    return [each for role, each in by_role.items() if role != MEASURING]


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
    sets = [
        candidate_set(row, row.question, answers, scorer, "em" if metric == "em" else "f1")
        for row, answers in zip(rows, candidates, strict=True)
    ]
    return oracle_values(sets, subset_sizes(sets, exchangeable=exchangeable))


def weigh_cells(
    test_cells: Sequence[FinishedCell], dev_cells: Sequence[FinishedCell], options: Reporting
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
    curves = {name: mean_scores(cells) for name, cells in by_curve.items()}
    return Findings(
        [each.name for each in frontier(scores)],
        {
            name: {
                through: _fit_or_reason(points, options.resamples)
                for through, points in (("pareto", frontier(cells)), ("all", cells))
            }
            for name, cells in curves.items()
            if len(cells) > 1
        },
        choose_cells(scores, dev_scores or scores, options.budgets) if scores else [],
        list(dict.fromkeys(failed_cells)),
    )


def mean_scores(cells: Sequence[FinishedCell]) -> list[CellScores]:
    """Return the scores of the points that cells are, by question the mean over those of one point.

    Each by itself, the best would be the luckiest seed, and a curve would go through what seeds differ in.
    """
    scores = {each.name: each.scores for each in cells}
    return [
        CellScores(
            name,
            np.mean([scores[each].tokens for each in members], axis=0),
            np.mean([scores[each].scores for each in members], axis=0),
        )
        for name, members in find_points({each.name: each.manifest.settings for each in cells}).items()
    ]


def curve_name(each: FinishedCell) -> str:
    """Return what the cells have in common that a curve goes through: method, model and index."""
    opened = [
        f"{option}={short_value(value)}"
        for option, value in each.options.items()
        if value and option.split(".")[0] in OPENED_SECTIONS
    ]
    return " ".join([each.cell.method, *opened])


def frontier(scores: Sequence[CellScores]) -> list[CellScores]:
    """Return the cells that no other of these beats, by rising tokens."""
    places = pareto_set([each.mean_tokens for each in scores], [each.mean_score for each in scores])
    return [scores[place] for place in places]


def choose_cells(
    test_cells: Sequence[CellScores], chosen_on: Sequence[CellScores], budgets: Sequence[int]
) -> list[Choice]:
    """Choose the best cell under each budget by ``chosen_on``; report it on ``test_cells``.

    Budgets that change nothing, since another one leads to the same cells, have none.
    """
    by_name = {each.name: each for each in test_cells}
    choices = []
    for budget in informative_budgets(budgets, chosen_on):
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
