"""Two finished runs against each other on the questions that both have answered or failed at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.runs.folder import read_rows
from eval.scoring.rows import Measures
from eval.scoring.scorers import Scorer, scorer_title
from eval.statistics.comparisons import Against, against_baseline, disagreements
from eval.statistics.intervals import unpaired_power
from eval.tables.conditions import conditions_record
from eval.tables.runs import (
    Rows,
    check_same_file,
    common_questions,
    gold_note,
    manifest_of_answers,
    measured_alike,
    rows_of,
    scoring_of,
    unfinished_note,
)


@dataclass(frozen=True)
class PairedRuns:
    """The second run minus the first.

    Attributes:
        rows: those that are compared, by run ("first" and "second") and question id.
        scorer: what answers were scored by.
        scoring: what to call it in a sentence, with the files that it needed.
        recall_at: recall was measured over so many passages.
        measured: the scores by run, measure and question id.
        compared: the tests, one for each measure that both have.
        lost: questions that only the first run got right by EM, those first that are furthest apart in F1.
        won: those that only the second did.
        notes: which questions are left out, and whose gold answers count where the runs keep others.
        conditions: what the runs were made with, as :func:`conditions_record` writes it.
    """

    rows: Rows
    scorer: Scorer
    scoring: str
    recall_at: int
    measured: Mapping[str, Measures]
    compared: Sequence[Against]
    lost: Sequence[str]
    won: Sequence[str]
    notes: Sequence[str]
    conditions: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object; differences are fractions."""
        record = {
            "scorer": self.scorer.name,
            "scorer_title": self.scoring,
            "conditions": self.conditions,
            "disagreements": {"only_first_right": self.lost, "only_second_right": self.won},
        }
        return record | {one.measure: one.to_json() for one in self.compared}

    @property
    def power(self) -> str:
        """Say which differences so many questions cannot be expected to show, as these two runs spread."""
        seen = {
            one.measure: 100 * one.comparison.detectable
            for one in self.compared
            if one.comparison.detectable is not None
        }
        if not seen:
            return (
                "Power: the runs score alike on every question, which does not tell what difference could be "
                "seen."
            )
        paired = ", ".join(f"{points:.1f} points in {measure}" for measure, points in seen.items())
        first = next(iter(seen))
        apart = unpaired_power(*(list(self.measured[run][first].values()) for run in ("first", "second")))
        unpaired = (
            "" if apart is None else f"; without pairing by question it would be {100 * apart:.1f} in {first}"
        )
        return (
            f"Power: with n = {len(self.measured['first'][first])}, a difference under {paired} cannot be "
            f"seen (two-sided test at 5%, 80% power, from the spread of these runs{unpaired})."
        )


def compare_runs(first: Path, second: Path, scorer: str = "auto", recall_at: int = 0) -> PairedRuns:
    """Test the second run against the first.

    ``scorer`` and ``recall_at``: "auto" and 0 take those of the first run. Raises :class:`ConfigError` for
    runs of different question files, without a common question, or with no measure in common.
    """
    runs = {"first": first, "second": second}
    manifests = {name: manifest_of_answers(run) for name, run in runs.items()}
    check_same_file(list(manifests.values()))
    chosen, recall_at = scoring_of(manifests["first"], scorer, recall_at)
    found = {name: read_rows(run) for name, run in runs.items()}
    questions = common_questions(found)
    rows = rows_of(found, questions)
    measured = measured_alike(rows, manifests, chosen, recall_at)
    compared = against_baseline(measured, "first")
    lost, won = disagreements(measured["first"], measured["second"])
    return PairedRuns(
        rows,
        chosen,
        scorer_title(chosen, questions, manifests["first"].last.aliases),
        recall_at,
        measured,
        compared,
        lost,
        won,
        [note for note in (unfinished_note(found, questions), gold_note(rows, manifests)) if note],
        conditions_record(manifests),
    )
