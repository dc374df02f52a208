"""Test two runs against each other on the same questions.

    corag compare runs/test/one_step-1a2b3c4d runs/test/ircot-5e6f7a8b
    corag compare runs/test/one_step-1a2b3c4d runs/test/ircot-5e6f7a8b --disagreements 20

Like 'corag table' it is about the questions that both runs have answered or failed at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.runs.folder import read_rows
from core.runs.rows import SavedRow
from eval.scoring.rows import Measures
from eval.scoring.scorers import scorer_title
from eval.statistics.comparisons import Against, against_baseline, disagreements
from eval.statistics.intervals import unpaired_power
from eval.tables.conditions import conditions_record
from eval.tables.runs import (
    Rows,
    Runs,
    check_same_file,
    common_questions,
    gold_note,
    manifest_of_answers,
    measured_alike,
    only,
    scoring_of,
    unfinished_note,
)
from eval.tables.table import percent
from scripts.printing import one_line

COLUMNS = 100  # of the questions that are listed: their texts, and a model's replies, may be of any length


@dataclass(frozen=True)
class Config(Runs):
    """Options of 'corag compare'.

    Attributes:
        runs: two run folders; differences are second minus first.
        scorer: how answers are scored; "auto" takes that of the first run.
        recall_at: recall is measured over so many collected passages; 0 takes that of the first run.
        disagreements: list so many of the questions that only one of the runs got right, those first that the
            second lost; 0 for none.
    """

    USAGE = "corag compare RUN_A RUN_B."

    scorer: str = "auto"
    recall_at: int = 0
    disagreements: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.runs) != 2:
            raise ConfigError(
                f"two run folders are compared, but {len(self.runs)} were given: write {self.USAGE}"
            )
        if self.disagreements < 0:
            raise ConfigError(
                f"disagreements must be 0 (none) or a number of questions, but is {self.disagreements}."
            )


def main(config: Config) -> int:
    """Print the paired difference of each measure with its interval, p-value and power, what they disagree
    on, a line of JSON.
    """
    first, second = (Path(run) for run in config.runs)
    runs = {"first": first, "second": second}
    manifests = {name: manifest_of_answers(run) for name, run in runs.items()}
    check_same_file(list(manifests.values()))
    chosen, recall_at = scoring_of(manifests["first"], config.scorer, config.recall_at)
    found = {name: read_rows(run) for name, run in runs.items()}
    questions = common_questions(found)
    rows = only(found, questions)
    measured = measured_alike(rows, manifests, chosen, recall_at)
    compared = against_baseline(measured, "first")
    title = scorer_title(chosen, questions, manifests["first"].last.aliases)
    print(f"{second} minus {first}, scorer {title}, recall@{recall_at}:")
    for note in filter(None, (unfinished_note(found, questions), gold_note(rows, manifests))):
        print(note)
    for one in compared:
        comparison = one.comparison
        print(
            f"{one.measure:>6}: {percent(comparison.difference)} points, p = {comparison.p_value:.4f} "
            f"({one.p_holm:.4f} by Holm over {len(compared)} measures; sign-flip test, n = "
            f"{comparison.difference.n})"
        )
    print(power_note(compared, measured))
    known = conditions_record(manifests)
    print_conditions(known, runs)
    lost, won = disagreements(measured["first"], measured["second"])
    if "em" in measured["first"]:
        listed = [*lost, *won][: config.disagreements]
        print(disagreement_note(lost, won, len(measured["first"]["em"]), len(listed)))
        for name in listed:
            print("\n".join(disagreement_lines(name, rows)))
    differing = {"only_first_right": lost, "only_second_right": won}
    record = {"scorer": chosen.name, "scorer_title": title, "conditions": known, "disagreements": differing}
    print(json.dumps(record | {one.measure: one.to_json() for one in compared}))
    return 0


def power_note(compared: Sequence[Against], measured: Mapping[str, Measures]) -> str:
    """Say which differences so many questions cannot be expected to show, as these two runs spread."""
    seen = [one for one in compared if one.comparison.detectable is not None]
    if not seen:
        return "Power: the runs score alike on every question, which does not tell what difference could be seen."
    paired = ", ".join(
        f"{100 * (one.comparison.detectable or 0):.1f} points in {one.measure}" for one in seen
    )
    first = seen[0]
    apart = unpaired_power(*(list(measured[run][first.measure].values()) for run in ("first", "second")))
    unpaired = (
        ""
        if apart is None
        else f"; without pairing by question it would be {100 * apart:.1f} in {first.measure}"
    )
    return (
        f"Power: with n = {first.comparison.difference.n}, a difference under {paired} cannot be seen "
        f"(two-sided test at 5%, 80% power, from the spread of these runs{unpaired})."
    )


def print_conditions(known: Mapping[str, Any], runs: Mapping[str, Path]) -> None:
    """Print what both runs were made with, then what each was."""
    for line in known["shared"]:
        print(line)
    for name, run in runs.items():
        print(f"{name}: {run} ({known['own'][name]})")


def disagreement_note(lost: Sequence[str], won: Sequence[str], n: int, listed: int) -> str:
    """Say on how many questions the runs disagree, and how many of them are listed below."""
    followed = f" {listed:,} of them:" if listed else ""
    return (
        f"They disagree on {len(lost) + len(won):,} of {n:,} questions by EM: only the first is right on "
        f"{len(lost):,}, only the second on {len(won):,}.{followed}"
    )


def disagreement_lines(name: str, rows: Rows) -> list[str]:
    """Write a question with its gold answers, those of the first run, and what each run made of it, each on a
    line that fits.
    """
    asked = rows["first"][name].question
    told = {"gold": "; ".join(asked.answers)} | {run: _said(found[name]) for run, found in rows.items()}
    return [
        one_line(f"{name}: {asked.text}", COLUMNS),
        *(f"  {who:<6}  {one_line(text, COLUMNS - 10)}" for who, text in told.items()),
    ]


def _said(row: SavedRow) -> str:
    if row.answer is None:
        return f"(failed: {row.error.splitlines()[0]})"
    return row.text.strip() or "(an empty answer)"
