"""Scores of single questions: what a run's row earns in every measure that its question and scorer have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from corag.core.runs.rows import SavedRow
from eval.datasets.pages import page_ids
from eval.scoring.gold import find_gold
from eval.scoring.retrieval_metrics import (
    PROVENANCE_TITLES,
    answer_recall,
    page_recall,
    r_precision,
    with_provenance,
)
from eval.scoring.scorers import NOTHING_RIGHT, Scorer
from retrieval.index.aliases import NO_ALIASES, Aliases

PassageTexts = Callable[[Sequence[str]], Sequence[str]]
"""Returns the texts of passages by their ids, in the order of the ids."""

Measures = Mapping[str, Mapping[str, float]]
"""A run's scores: by measure, by question id."""

FURTHER_MEASURES = {"accuracy": "accuracy", **PROVENANCE_TITLES, "answer_recall": "answer recall"}
"""Titles of the measures beyond EM, F1 and recall by their names in JSON, in the order of a table."""

MEASURES = {"em": "EM", "f1": "F1", "recall": "recall", **FURTHER_MEASURES}
"""Titles of all measures by their names in JSON, in the order of a table."""


def measure_title(name: str, recall_at: int) -> str:
    """Return what a table calls a measure, with the depth of recall.

    >>> measure_title("recall", 5), measure_title("em", 5)
    ('recall@5', 'EM')
    """
    return f"recall@{recall_at}" if name == "recall" else MEASURES.get(name, name)


@dataclass(frozen=True, slots=True)
class Scores:
    """One question's scores as fractions; a failed question scores 0.

    Attributes:
        em: exact match.
        f1: F1 of the answer's tokens.
        recall: of the gold passages; None for a question without them.
        further: measures of :data:`FURTHER_MEASURES` and of rankings by name.
        is_scored: there are gold answers, and the run has answers; without them EM and F1 mean nothing.
    """

    em: float
    f1: float
    recall: float | None
    further: Mapping[str, float] = field(default_factory=dict)
    is_scored: bool = True

    @property
    def measures(self) -> dict[str, float]:
        """All that was measured, by name: those of :data:`MEASURES` that the question and the scorer have."""
        values = {"em": self.em, "f1": self.f1} if self.is_scored else {}
        return values | ({} if self.recall is None else {"recall": self.recall}) | dict(self.further)


class ScoredRow(NamedTuple):
    """A row of a run with its scores."""

    row: SavedRow
    scores: Scores


def score_row(
    row: SavedRow,
    scorer: Scorer,
    recall_at: int,
    *,
    searches: bool = True,
    texts: PassageTexts | None = None,
    aliases: Aliases = NO_ALIASES,
) -> Scores:
    """Score one row of a run.

    Args:
        row: a finished question, answered or failed.
        scorer: the rule that answers are compared by.
        recall_at: recall is over so many different passages, the first ones collected.
        searches: whether the method searches at all; else there is no recall.
        texts: for looking for the gold answers in the texts of these passages; without it that is not done.
        aliases: what gold ids mean in the index that was searched.
    """
    gold, pages, is_failure = row.question.answers, row.question.pages, row.answer is None
    # Gold answers without any gold page: the official script scores what was found for them as 0.
    unproven = scorer.wants_pages and bool(gold) and not row.question.supporting
    item = NOTHING_RIGHT if is_failure or not gold else scorer.score(row.text, gold)
    further = {}
    if scorer.accuracy is not None and gold:
        further["accuracy"] = 0.0 if is_failure else scorer.best_accuracy(row.text, gold)
    recall = None
    if searches and (pages or unproven):
        collected_pages = page_ids(row.passage_ids)
        recall = page_recall(collected_pages, pages, recall_at)
        measures = {**further, "em": item.em, "f1": item.f1}
        further |= with_provenance(measures, r_precision(collected_pages, pages))
    elif searches:
        found = find_gold(row, aliases, recall_at)
        recall = found.share(recall_at) if found else None
    if searches and texts is not None:
        # A passage that was collected twice takes one of the places, as in recall.
        answer_share = answer_recall(texts(list(dict.fromkeys(row.passage_ids))[:recall_at]), gold)
        further |= {} if answer_share is None else {"answer_recall": answer_share}
    return Scores(item.em, item.f1, recall, further, bool(gold))


def score_rows(
    rows: Iterable[SavedRow],
    scorer: Scorer,
    recall_at: int,
    *,
    searches: bool = True,
    texts: PassageTexts | None = None,
    aliases: Aliases = NO_ALIASES,
) -> list[ScoredRow]:
    """Return the rows with their scores; arguments as in :func:`score_row`."""
    return [
        ScoredRow(row, score_row(row, scorer, recall_at, searches=searches, texts=texts, aliases=aliases))
        for row in rows
    ]


def group_by_measure(scored_rows: Iterable[ScoredRow]) -> Measures:
    """Return the scores of a run by measure and question id."""
    measures: dict[str, dict[str, float]] = {}
    for row, scores in scored_rows:
        for name, value in scores.measures.items():
            measures.setdefault(name, {})[row.question.id] = value
    return measures
