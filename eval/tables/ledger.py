"""Where the tokens and seconds of a run went: by role and by stage.

Tokens and waiting are those of the lines that count, as in every table; of failed attempts that were tried
again there is the sum.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corag.core.errors import DataError
from corag.core.runs.folder import read_attempts
from corag.core.runs.rows import SavedRow
from corag.core.tools import GenerateStep, ScoreStep, SearchStep, Step
from corag.core.types import MEASURING, THINKING, TokenUsage

STAGES = (GenerateStep.kind, ScoreStep.kind, SearchStep.kind)


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens of one role; ``remembered_tokens``: of cached replies."""

    usage: TokenUsage = field(default_factory=TokenUsage)
    remembered_tokens: int = 0

    @property
    def in_cache(self) -> int:
        """Prompt tokens that the engine found in its prefix cache: neither computed nor of a cached reply."""
        return self.usage.total - self.usage.computed - self.remembered_tokens

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.usage + other.usage, self.remembered_tokens + other.remembered_tokens)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Seconds that questions waited for something, added up over a question's calls.

    Calls made at the same time count each, so a question may wait longer than it took. ``mean``, ``p50`` and
    ``p95`` are per question, over all questions, also those that never waited.
    """

    calls: int
    total: float
    mean: float
    p50: float
    p95: float

    @staticmethod
    def of(calls: int, seconds: Sequence[float]) -> Waiting:
        """Summarise the seconds of each question."""
        p50, p95 = np.percentile(seconds, (50, 95))
        return Waiting(calls, float(np.sum(seconds)), float(np.mean(seconds)), float(p50), float(p95))


@dataclass(frozen=True, slots=True)
class Ledger:
    """A run's spending by role, its waiting by stage, and its starts.

    Attributes:
        questions: how many were finished.
        failure_count: how many of them failed.
        roles: spending by role, in order of appearance.
        stages: waiting by stage.
        remembered_searches: those that an equal search had made; they are among the calls of their stage.
        question_seconds: from a question's first call to its answer.
        wall: seconds of all starts, each from when engine and index were open to its last question's end.
        retry_count: failed attempts that were tried again.
        retried_usage: what these had spent.
    """

    questions: int
    failure_count: int
    roles: Mapping[str, Spending]
    stages: Mapping[str, Waiting]
    remembered_searches: int
    question_seconds: Waiting
    wall: float
    retry_count: int
    retried_usage: TokenUsage

    @property
    def total(self) -> Spending:
        """The sum over all roles."""
        return sum(self.roles.values(), Spending())

    def share(self, role: str) -> float:
        """Return a role's share of all computed tokens."""
        return self.roles[role].usage.computed / max(1, self.total.usage.computed)

    def to_json(self) -> dict[str, Any]:
        """Return the ledger as a JSON object; what is not known is null."""
        return {
            "questions": self.questions,
            "failed": self.failure_count,
            "roles": {
                role: _tokens(spending) | {"share": round(self.share(role), 4)}
                for role, spending in self.roles.items()
            },
            "total": _tokens(self.total),
            "waiting": {stage: _round_figures(asdict(waiting)) for stage, waiting in self.stages.items()},
            "remembered_searches": self.remembered_searches,
            "question_seconds": _round_figures(asdict(self.question_seconds)),
            "wall_seconds": _round_figures(self.wall),
            "retried": self.retry_count,
            "retried_tokens": self.retried_usage.total,
        }


@dataclass(frozen=True, slots=True)
class _Line:
    """What a line of a run says about tokens and seconds. ``calls``: the seconds of each call by stage."""

    question: str
    is_failure: bool
    seconds: float
    remembered_searches: int
    roles: Mapping[str, Spending]
    calls: Mapping[str, Sequence[float]]
    end: float


def read_ledger(folder: Path) -> Ledger:
    """Add up a run.

    Raises :class:`DataError` if the folder is no run, no question has been finished, or no steps were kept.
    """
    attempts = read_attempts(folder)
    first = next(attempts, None)
    if first is None:
        raise DataError(f"the run '{folder}' has no finished question yet: there is nothing to add up.")
    return add_up(itertools.chain([first], attempts))


def add_up(attempts: Iterable[SavedRow]) -> Ledger:
    """Return the ledger of a run's lines, at least one, in the order in which they were written."""
    counting: dict[str, _Line] = {}
    starts: defaultdict[float, list[_Line]] = defaultdict(list)
    for row in attempts:
        line = counting[row.question.id] = _line(row)
        starts[row.opened].append(line)
    # Tokens are those of the line that counts, the last of its question. Those of the others were spent all
    # the same: they are told apart.
    lines = list(counting.values())
    retried = [each for group in starts.values() for each in group if each is not counting[each.question]]
    roles: defaultdict[str, Spending] = defaultdict(Spending)
    for line in lines:
        for role, spending in line.roles.items():
            roles[role] += spending
    return Ledger(
        questions=len(lines),
        failure_count=sum(line.is_failure for line in lines),
        roles=dict(roles),
        stages={stage: _waiting(stage, lines) for stage in STAGES},
        remembered_searches=sum(line.remembered_searches for line in lines),
        question_seconds=Waiting.of(len(lines), [line.seconds for line in lines]),
        wall=_union((opened, max(line.end for line in group)) for opened, group in starts.items()),
        retry_count=len(retried),
        retried_usage=sum((each.usage for line in retried for each in line.roles.values()), TokenUsage()),
    )


def _union(times: Iterable[tuple[float, float]]) -> float:
    """Return the seconds that some times take together: shards run side by side."""
    seconds, last = 0.0, 0.0
    for begin, end in sorted(times):
        seconds += max(0.0, end - max(begin, last))
        last = max(last, end)
    return seconds


def spending_by_role(steps: Sequence[Step]) -> dict[str, Spending]:
    """Return what some steps spent by role; they tell cached replies apart."""
    roles: defaultdict[str, Spending] = defaultdict(Spending)
    for step in steps:
        if not isinstance(step, SearchStep):
            roles[step.role] += _spending_of(step.usage)
        if isinstance(step, GenerateStep) and step.thinking.total:
            roles[MEASURING if step.role == MEASURING else THINKING] += _spending_of(step.thinking)
    return dict(roles)


def _spending_of(usage: TokenUsage) -> Spending:
    # Even a prompt that lies in the prefix cache costs computed tokens: without any, it was cached.
    return Spending(usage, 0 if usage.computed else usage.total)


def _tokens(spending: Spending) -> dict[str, int]:
    usage = spending.usage
    return {
        "calls": usage.calls,
        "prompt": usage.prompt,
        "generated": usage.generated,
        "in_cache": spending.in_cache,
        "remembered": spending.remembered_tokens,
        "computed": usage.computed,
    } | ({"estimated": usage.estimated} if usage.estimated else {})


def _round_figures(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _round_figures(item) for name, item in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def _line(row: SavedRow) -> _Line:
    if row.usage and not row.steps:
        raise DataError(
            f"the question '{row.question.id}' has no steps, as sampled chains have none: no ledger."
        )
    return _Line(
        row.question.id,
        row.answer is None,
        row.seconds,
        row.remembered_searches,
        spending_by_role(row.steps),
        {stage: [step.seconds for step in row.steps if step.kind == stage] for stage in STAGES},
        row.begun + row.seconds,
    )


def _waiting(stage: str, lines: Sequence[_Line]) -> Waiting:
    calls = [line.calls[stage] for line in lines]
    return Waiting.of(sum(map(len, calls)), list(map(sum, calls)))
