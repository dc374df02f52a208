"""Runs against a baseline on the same questions: paired differences of every measure, p-values corrected for their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import ConfigError
from core.rows import SavedRow
from eval.scorers import Scorer
from eval.statistics import Comparison, compare_paired, holm
from eval.table import interval_record, score_row

Measures = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Against:
    """One run minus the baseline in one measure; ``p_holm`` is corrected for all comparisons that were made with it."""

    run: str
    measure: str
    comparison: Comparison
    p_holm: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures as fractions, rounded."""
        comparison = self.comparison
        return interval_record("difference", comparison.difference) | {
            "p_value": round(comparison.p_value, 4),
            "p_value_holm": round(self.p_holm, 4),
            "detectable": None if comparison.detectable is None else round(comparison.detectable, 4),
            "n": comparison.difference.n,
        }


def measures_of(rows: Iterable[SavedRow], scorer: Scorer, recall_at: int, *, searches: bool) -> Measures:
    """Return the values of each measure by question id: EM, F1, recall and the scorer's further ones, as far as there are any.

    ``searches``: whether the method searches at all.
    """
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        score = score_row(row, scorer, recall_at, searches=searches)
        values = {"em": score.em, "f1": score.f1} if score.scored else {}
        if score.recall is not None:
            values["recall"] = score.recall
        for name, value in (values | dict(score.further)).items():
            found.setdefault(name, {})[row.question.id] = value
    return found


def against_baseline(runs: Mapping[str, Measures], baseline: str) -> list[Against]:
    """Compare every other run with the baseline in every measure that both have, Holm's correction over all of them.

    Raises :class:`ConfigError` if no run has a measure in common with it, :class:`core.errors.DataError` if they were not measured
    on the same questions.
    """
    ours = runs[baseline]
    compared = {
        (run, measure): compare_paired(ours[measure], values)
        for run, theirs in runs.items()
        if run != baseline
        for measure, values in theirs.items()
        if measure in ours
    }
    if not compared:
        raise ConfigError(
            f"nothing can be compared with '{baseline}': no other run has a measure in common with it. Questions without gold "
            "answers and supporting passages are not scored."
        )
    adjusted = holm([comparison.p_value for comparison in compared.values()])
    return [
        Against(run, measure, comparison, p)
        for ((run, measure), comparison), p in zip(compared.items(), adjusted, strict=True)
    ]
