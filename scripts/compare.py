"""Test two runs against each other on the same questions.

    corag compare runs/test/one_step-1a2b3c4d runs/test/ircot-5e6f7a8b

Like 'corag table' it is about the questions that both runs have answered or failed at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from core.records import read_rows
from eval.comparing import Against, Measures, against_baseline
from eval.statistics import unpaired_power
from eval.table import percent
from scripts.table import (
    Runs,
    check_same_file,
    common_questions,
    gold_note,
    manifest_of_answers,
    measured_alike,
    only,
    scoring_of,
)


@dataclass(frozen=True)
class Config(Runs):
    """Options of 'corag compare'.

    Attributes:
        runs: two run folders; differences are second minus first.
        scorer: how answers are scored; "auto" takes that of the first run.
        recall_at: recall is measured over so many collected passages; 0 takes that of the first run.
    """

    USAGE = "corag compare RUN_A RUN_B."

    scorer: str = "auto"
    recall_at: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.runs) != 2:
            raise ConfigError(f"two run folders are compared, but {len(self.runs)} were given: write {self.USAGE}")


def main(config: Config) -> int:
    """Print the paired difference of each measure with its interval, p-value and power, then one line of JSON."""
    first, second = (Path(run) for run in config.runs)
    runs = {"first": first, "second": second}
    manifests = {name: manifest_of_answers(run) for name, run in runs.items()}
    check_same_file(list(manifests.values()))
    chosen, recall_at = scoring_of(manifests["first"], config.scorer, config.recall_at)
    found = {name: read_rows(run) for name, run in runs.items()}
    rows = only(found, common_questions(found))
    measured = measured_alike(rows, manifests, chosen, recall_at)
    compared = against_baseline(measured, "first")
    print(f"{second} minus {first}, scorer {chosen.name}, recall@{recall_at}:")
    if note := gold_note(rows, manifests):
        print(note)
    for one in compared:
        comparison = one.comparison
        print(
            f"{one.measure:>6}: {percent(comparison.difference)} points, p = {comparison.p_value:.4f} "
            f"({one.p_holm:.4f} by Holm over {len(compared)} measures; sign-flip test, n = {comparison.difference.n})"
        )
    print(power_note(compared, measured))
    print(json.dumps({"scorer": chosen.name} | {one.measure: one.to_json() for one in compared}))
    return 0


def power_note(compared: Sequence[Against], measured: Mapping[str, Measures]) -> str:
    """Say which differences so many questions cannot be expected to show, as these two runs spread."""
    seen = [one for one in compared if one.comparison.detectable is not None]
    if not seen:
        return "Power: the runs score alike on every question, which does not tell what difference could be seen."
    paired = ", ".join(f"{100 * (one.comparison.detectable or 0):.1f} points in {one.measure}" for one in seen)
    first = seen[0]
    apart = unpaired_power(*(list(measured[run][first.measure].values()) for run in ("first", "second")))
    unpaired = (
        "" if apart is None else f"; without pairing by question it would be {100 * apart:.1f} in {first.measure}"
    )
    return (
        f"Power: with n = {first.comparison.difference.n}, a difference under {paired} cannot be seen (two-sided test at 5%, "
        f"80% power, from the spread of these runs{unpaired})."
    )
