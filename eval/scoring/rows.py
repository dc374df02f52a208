"""Scores of single questions: what a run's row earns in every measure that its question and scorer have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.runs.rows import SavedRow
from eval.scoring.retrieval_metrics import (
    PROVENANCE_TITLES,
    answer_recall,
    page_recall,
    pages_of,
    r_precision,
    supporting_recall,
    with_provenance,
)
from eval.scoring.scorers import NOTHING_RIGHT, Scorer

PassageTexts = Callable[[Sequence[str]], Sequence[str]]
"""Returns the texts of passages by their ids, in the order of the ids."""

Measures = Mapping[str, Mapping[str, float]]
"""A run's scores: by measure, by question id."""

FURTHER = {"accuracy": "accuracy", **PROVENANCE_TITLES, "answer_recall": "answer recall"}
"""Titles of the measures beyond EM, F1 and recall by their names in JSON, in the order of a table."""


@dataclass(frozen=True, slots=True)
class Scores:
    """One question's scores as fractions; a failed question scores 0.

    Attributes:
        em: exact match.
        f1: F1 of the answer's tokens.
        recall: of the gold passages; None for a question without them.
        further: measures of :data:`FURTHER` by name.
        scored: whether there are gold answers; without them EM and F1 mean nothing.
    """

    em: float
    f1: float
    recall: float | None
    further: Mapping[str, float] = field(default_factory=dict)
    scored: bool = True

    @property
    def measured(self) -> dict[str, float]:
        """All that was measured, by name: "em", "f1", "recall" and those of :data:`FURTHER`."""
        values = {"em": self.em, "f1": self.f1} if self.scored else {}
        return values | ({} if self.recall is None else {"recall": self.recall}) | dict(self.further)


def score_row(
    row: SavedRow, scorer: Scorer, recall_at: int, *, searches: bool = True, texts: PassageTexts | None = None
) -> Scores:
    """Score one row of a run.

    Args:
        row: a finished question, answered or failed.
        scorer: the rule that answers are compared by.
        recall_at: recall is over so many different passages, the first ones collected.
        searches: whether the method searches at all; else there is no recall.
        texts: for looking for the gold answers in the texts of these passages; without it that is not done.
    """
    gold, pages, failed = row.question.answers, row.question.pages, row.answer is None
    # Gold answers without any gold page: the official script scores what was found for them as 0.
    unproven = scorer.wants_pages and bool(gold) and not row.question.supporting
    item = NOTHING_RIGHT if failed or not gold else scorer.score(row.text, gold)
    further = {}
    if scorer.accuracy is not None and gold:
        further["accuracy"] = 0.0 if failed else scorer.accuracy_of(row.text, gold)
    recall = None
    if searches and (pages or unproven):
        found = pages_of(row.passage_ids)
        recall = page_recall(found, pages, recall_at)
        further |= with_provenance({**further, "em": item.em, "f1": item.f1}, r_precision(found, pages))
    elif searches:
        recall = supporting_recall(row.passage_ids, row.question.supporting, recall_at)
    if searches and texts is not None:
        held = answer_recall(texts(list(dict.fromkeys(row.passage_ids))[:recall_at]), gold)
        further |= {} if held is None else {"answer_recall": held}
    return Scores(item.em, item.f1, recall, further, bool(gold))


def measures_of(
    rows: Iterable[SavedRow],
    scorer: Scorer,
    recall_at: int,
    *,
    searches: bool,
    texts: PassageTexts | None = None,
) -> Measures:
    """Return the scores of a run's rows by measure and question id; arguments as in :func:`score_row`."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        for name, value in score_row(row, scorer, recall_at, searches=searches, texts=texts).measured.items():
            found.setdefault(name, {})[row.question.id] = value
    return found
