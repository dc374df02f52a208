"""The budget that the questions of an adaptive run share.

Apart from adaptive.py, which decodes, because the options name it and adaptive.py needs the options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from core.runs.rows import SavedRow
from core.tools import Tools


@dataclass
class SharedBudget:
    """What the questions of one run share: the tokens that they saved for those that need more, and scores.

    ``balance``: negative when they overspent. ``scores``: of the greedy chains so far.
    """

    balance: int = 0
    scores: list[float] = field(default_factory=list)

    @classmethod
    def of_rows(cls, rows: Iterable[SavedRow], mean_budget: int) -> SharedBudget:
        """Return it as the answered questions of a run left it, so that a resumed run goes on with it."""
        shared = cls()
        for row in rows:
            if row.answer is None:
                continue
            shared.balance += mean_budget - row.total_usage.total
            if (score := row.further["chains"][0]["score"]) is not None:
                shared.scores.append(score)
        return shared


class QuestionBudget:
    """What one question pays into the shared budget of its run and is charged for.

    A context manager, at whose end the question is charged for what it spent, also if it failed. Without a
    ``mean_budget`` everything is affordable.
    """

    def __init__(self, tools: Tools, mean_budget: int) -> None:
        # A question that is asked by itself shares with nobody.
        self.shared = tools.shared if isinstance(tools.shared, SharedBudget) else SharedBudget()
        self._tools = tools
        self._mean = mean_budget
        self._balance = 0  # what this question has added to the shared balance so far

    def __enter__(self) -> QuestionBudget:
        return self

    def __exit__(self, *_: object) -> None:
        self.charge()

    def charge(self, to_come: int = 0) -> None:
        """Set what the question costs altogether: what it has spent, and what is still certain to come.

        Before the first charge it adds nothing: on questions that have just begun nobody may count, for they
        still have to pay for their own chains.
        """
        balance = self._mean - self._tools.spent.total - to_come
        self.shared.balance += balance - self._balance
        self._balance = balance

    def affords(self, tokens: int) -> bool:
        """Whether there are so many tokens for this question."""
        return not self._mean or self.shared.balance >= tokens

    @contextmanager
    def reserve(self, tokens: int) -> Iterator[int | None]:
        """Keep tokens from other questions during the block; give its limit, None if there is none."""
        self.shared.balance -= tokens
        try:
            yield tokens if self._mean else None
        finally:
            self.shared.balance += tokens
