"""Test two runs against each other on the same questions.

    corag compare runs/test/one_step-1a2b3c4d runs/test/ircot-5e6f7a8b
    corag compare runs/test/one_step-1a2b3c4d runs/test/ircot-5e6f7a8b --disagreements 20

Like 'corag table' it is about the questions that both runs have answered or failed at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from core.runs.rows import SavedRow
from core.text import printable
from eval.tables.pairs import PairedRuns, compare_runs
from eval.tables.printing import one_line
from eval.tables.runs import Runs
from eval.tables.table import percent
from scripts.ended import Ended

COLUMNS = 100  # of the questions that are listed: their texts, and a model's replies, may be of any length


@dataclass(frozen=True)
class CompareOptions(Runs):
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


def main(config: CompareOptions) -> Ended:
    """Print each measure's difference with its interval, and what the runs disagree on."""
    first, second = (Path(run) for run in config.runs)
    pair = compare_runs(first, second, config.scorer, config.recall_at)
    print(f"{second} minus {first}, scorer {pair.scoring}, recall@{pair.recall_at}:")
    for note in pair.notes:
        print(note)
    for one in pair.compared:
        comparison = one.comparison
        print(
            f"{one.measure:>6}: {percent(comparison.difference)} points, p = {comparison.p_value:.4f} "
            f"({one.p_holm:.4f} by Holm over {len(pair.compared)} measures; sign-flip test, n = "
            f"{comparison.difference.n})"
        )
    print(pair.power)
    for line in pair.conditions["shared"]:
        print(printable(line))
    for name, run in (("first", first), ("second", second)):
        print(printable(f"{name}: {run} ({pair.conditions['own'][name]})"))
    for line in disagreement_lines(pair, config.disagreements):
        print(printable(line))
    return Ended(0, [pair.to_json()])


def disagreement_lines(pair: PairedRuns, limit: int) -> Iterator[str]:
    """Say on how many questions the runs disagree, and list so many of them, if EM was measured."""
    if "em" not in pair.measured["first"]:
        return
    lost, won, n = len(pair.lost), len(pair.won), len(pair.measured["first"]["em"])
    listed = [*pair.lost, *pair.won][:limit]
    yield (
        f"They disagree on {lost + won:,} of {n:,} questions by EM: only the first is right on {lost:,}, "
        f"only the second on {won:,}." + (f" {len(listed):,} of them:" if listed else "")
    )
    for name in listed:
        asked = pair.rows["first"][name].question
        yield one_line(f"{name}: {asked.text}", COLUMNS)
        told = {"gold": "; ".join(asked.answers)} | {
            run: _said(rows[name]) for run, rows in pair.rows.items()
        }
        for who, text in told.items():
            yield f"  {who:<6}  {one_line(text, COLUMNS - 10)}"


def _said(row: SavedRow) -> str:
    if row.answer is None:
        return f"(failed: {row.error.splitlines()[0]})"
    return row.text.strip() or "(an empty answer)"
