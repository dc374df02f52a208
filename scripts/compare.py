"""Test two runs against each other on the same questions.

corag compare runs/test/one_step-1a2b3c4d runs/test/ircot-5e6f7a8b
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import ConfigError
from core.records import differences, read_manifest, read_rows
from eval.scorers import Scorer, chosen_scorer
from eval.statistics import compare_paired, holm
from eval.table import percent, score_record
from scripts.table import manifest_of_answers


@dataclass(frozen=True)
class Config:
    """Options of 'corag compare'.

    Attributes:
        runs: two run folders; differences are second minus first.
        scorer: how answers are scored; "auto" takes that of the first run's dataset.
        recall_at: recall is measured over so many collected passages.
    """

    runs: list[str] = field(default_factory=list)
    scorer: str = "auto"
    recall_at: int = 15

    def __post_init__(self) -> None:
        if len(self.runs) != 2:
            raise ConfigError(
                f"two run folders are compared, but {len(self.runs)} were given: write corag compare RUN_A RUN_B."
            )


def main(config: Config) -> int:
    """Print the paired difference of each measure with its interval and p-value, then one line of JSON."""
    first, second = (Path(run) for run in config.runs)
    asked, asked_too = (manifest_of_answers(run)["settings"]["questions"] for run in (first, second))
    if changed := differences(asked, asked_too, "questions"):
        raise ConfigError(
            f"the runs answered different question files ({'; '.join(changed)}): compare runs on the same file."
        )
    chosen = chosen_scorer(config.scorer, asked["dataset"])
    before, after = (measures(path, chosen, config.recall_at) for path in (first, second))
    compared = {name: compare_paired(before[name], after[name]) for name in before if before[name] and after[name]}
    adjusted = dict(zip(compared, holm([comparison.p_value for comparison in compared.values()]), strict=True))
    print(f"{second} minus {first}, scorer {chosen.name}, recall@{config.recall_at}:")
    result: dict[str, object] = {"scorer": chosen.name}
    for name, comparison in compared.items():
        n = comparison.difference.n
        print(
            f"{name:>6}: {percent(comparison.difference)} points, p = {comparison.p_value:.4f} "
            f"({adjusted[name]:.4f} by Holm over {len(compared)} measures; sign-flip test, n = {n})"
        )
        result[name] = {
            "difference": round(comparison.difference.mean, 4),
            "p_value": round(comparison.p_value, 4),
            "p_value_holm": round(adjusted[name], 4),
            "n": n,
        }
    print(json.dumps(result))
    return 0


def measures(run: Path, chosen: Scorer, recall_at: int) -> dict[str, dict[str, float]]:
    """Return EM, F1 and recall of a run by question id; no recall if its method does not search."""
    searches = bool(read_manifest(run)["settings"]["retriever"])
    rows = read_rows(run)
    scores = {name: score_record(record, chosen, recall_at, searches=searches) for name, record in rows.items()}
    return {
        "em": {name: score.em for name, score in scores.items()},
        "f1": {name: score.f1 for name, score in scores.items()},
        "recall": {name: score.recall for name, score in scores.items() if score.recall is not None},
    }
