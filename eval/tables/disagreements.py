"""The questions that only one of two runs got right, with what each of them answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corag.core.runs.rows import SavedRow
from corag.core.types import Question
from eval.statistics.comparisons import disagreements
from eval.tables.runs import Run


@dataclass(frozen=True, slots=True)
class Disagreements:
    """What a run and the baseline disagree on by EM.

    Attributes:
        run: the run.
        baseline: the baseline.
        n: how many questions both were scored on.
        lost_ids: ids of those that only the baseline got right, the furthest apart in F1 first.
        won_ids: those that only the run did.
        examples: some of them with the answers of both, those that the run lost first.
    """

    run: str
    baseline: str
    n: int
    lost_ids: Sequence[str]
    won_ids: Sequence[str]
    examples: Sequence[tuple[Question, Mapping[str, str]]]

    def to_json(self) -> dict[str, Sequence[str]]:
        """Return the ids of the questions as a JSON object."""
        return {"only_baseline_right": self.lost_ids, "only_run_right": self.won_ids}


def find_disagreements(baseline: Run, run: Run, limit: int) -> Disagreements | None:
    """Return what two scored runs disagree on, with ``limit`` examples; None if EM was not measured."""
    if "em" not in baseline.measures or "em" not in run.measures:
        return None
    lost_ids, won_ids = disagreements(baseline.measures, run.measures)
    examples = [
        (baseline.rows[name].question, {each.name: _answer(each.rows[name]) for each in (baseline, run)})
        for name in [*lost_ids, *won_ids][:limit]
    ]
    return Disagreements(run.name, baseline.name, len(baseline.measures["em"]), lost_ids, won_ids, examples)


def _answer(row: SavedRow) -> str:
    if row.answer is None:
        return f"(failed: {row.error.splitlines()[0]})"
    return row.text.strip() or "(an empty answer)"
