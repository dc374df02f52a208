"""Finished runs, read back from disk for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.runs.folder import read_rows
from core.runs.manifest import Manifest
from core.types import Question
from eval.scoring.rows import PassageTexts
from eval.scoring.scorers import Scorer
from eval.tables.table import Summary, json_record, summarise

NO_TEXTS: Mapping[str, PassageTexts] = {}


def summarise_runs(
    runs: Mapping[str, Path],
    questions: Sequence[Question],
    chosen: Scorer,
    recall_at: int,
    texts: Mapping[str, PassageTexts] = NO_TEXTS,
) -> list[Summary]:
    """Read the runs back from disk and summarise the given questions of each.

    ``texts``: passages by id, for some runs.
    """
    asked = {question.id: question for question in questions}
    summaries = []
    for name, folder in runs.items():
        found = read_rows(folder)
        searches = Manifest.read(folder).searches
        # Gold answers come from the question file: aliases may have been added to it since.
        rows = [replace(found[key], question=question) for key, question in asked.items() if key in found]
        summaries.append(
            summarise(name, rows, chosen, recall_at=recall_at, searches=searches, texts=texts.get(name))
        )
    return summaries


def figures(summaries: Sequence[Summary], runs: Mapping[str, Path], chosen: Scorer) -> dict[str, Any]:
    """Return the table as the JSON object that is printed last."""
    by_run = {s.method: json_record(s) | {"folder": str(runs[s.method])} for s in summaries}
    return {"runs": by_run, "scorer": chosen.name}


def status(summaries: Sequence[Summary]) -> int:
    """Return 1 if every question of some method failed, else 0."""
    return 1 if any(summary.failed == summary.n for summary in summaries) else 0
