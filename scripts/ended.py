"""What a command ends with: its exit status, and the figures that ``--json`` prints at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.runs.failures import TRY_AGAIN, Failures


@dataclass(frozen=True)
class Ended:
    """A command that returns this has said all that a person wants to know; the rest is for programs.

    Attributes:
        status: the exit status.
        records: what ``--json`` prints, a line each; JSON values.
        failures: the questions that it could not answer, which are told last of all.
        max_failed: so many of them leave the exit status as it is; more make it 1.
        advice: how to answer them.
    """

    status: int
    records: Sequence[Mapping[str, Any]]
    failures: Failures = field(default_factory=Failures)
    max_failed: int = 0
    advice: str = TRY_AGAIN

    @property
    def exit_status(self) -> int:
        """The exit status: 1 instead of 0 if too many questions failed."""
        return self.status or int(self.failures.failed > self.max_failed)
