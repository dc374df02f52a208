"""What the questions that a run has still to answer will take, judged by those that it has answered."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from corag.core.runs.folder import read_attempts
from corag.core.runs.rows import SavedRow
from corag.core.types import TokenUsage

MIN_QUESTIONS = 10
"""Questions by which others can be judged at all."""

_MAX_ROWS = 1_000  # rows that are looked at: their mean is known to a few percent by then
_AT_WORK = 0.8  # share of a start's questions until whose end the engine had enough to do


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """What some questions take, in all.

    Attributes:
        questions: how many.
        tokens: prompt and generated.
        computed: those that the engine computes: they were neither in its cache nor remembered.
        seconds: with the engine and the index open; None if the answered ones tell no pace.
        error: half the width of the 95% interval of ``computed``, as a share of it.
    """

    questions: int
    tokens: int
    computed: int
    seconds: float | None
    error: float


def estimate(folder: Path, questions: int) -> RunEstimate | None:
    """Judge what ``questions`` more will take by those that a run folder has answered.

    None if these are fewer than :data:`MIN_QUESTIONS`. Raises :class:`DataError` if they cannot be read.
    """
    attempts = islice(read_attempts(folder), _MAX_ROWS)
    rows = [*{row.question.id: row for row in attempts if not row.error}.values()]
    if len(rows) < MIN_QUESTIONS:
        return None
    share = questions / len(rows)
    usages = [sum(row.usage.values(), TokenUsage()) for row in rows]
    usage = sum(usages, TokenUsage())
    deviation = statistics.stdev(each.computed for each in usages) / max(1, usage.computed / len(rows))
    pace = questions_per_second(rows)
    return RunEstimate(
        questions=questions,
        tokens=round(share * usage.total),
        computed=round(share * usage.computed),
        seconds=questions / pace if pace else None,
        error=1.96 * deviation / math.sqrt(len(rows)),
    )


def questions_per_second(rows: Iterable[SavedRow]) -> float:
    """Return how many questions a second the starts of a run worked through; 0 if their rows do not tell.

    Towards the end of a start fewer and fewer questions are in flight, so one of few questions seems slow.
    What counts is the work until four fifths of them were answered: of the others, the share of their seconds
    that lay before that.
    """
    starts: dict[float, list[SavedRow]] = {}
    for row in rows:
        starts.setdefault(row.opened, []).append(row)
    finished_work = seconds = 0.0
    for group in starts.values():
        first = min(row.begun for row in group)
        ends = sorted(row.begun + row.seconds for row in group)
        until = ends[min(len(ends) - 1, round(_AT_WORK * len(ends)))]
        finished_work += sum(
            min(1.0, max(0.0, until - row.begun) / row.seconds) if row.seconds else 1.0 for row in group
        )
        seconds += until - first
    return finished_work / seconds if seconds > 0 else 0.0
