"""The result of a command: its exit status, and the figures that ``--json`` prints on the last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from corag.core.runs.failures import TRY_AGAIN, Failures


@dataclass(frozen=True)
class CommandResult:
    """Exit status and figures of a command that has already printed its text for people.

    Attributes:
        status: the exit status.
        records: what ``--json`` prints, a line each; JSON values.
        failures: questions without an answer, printed last of all.
        max_failed: as many failures as leave the exit status as it is; more make it 1.
        advice: how to answer the failed questions.
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


def print_report(report: Any, what: str, folder: str) -> CommandResult:
    """Print what was written to a folder, and return it as a command's result.

    Args:
        report: a dataclass with ``lines()``, for people; its ``settings`` are in the folder and are left out.
        what: the folder's content, such as "Rows".
        folder: where it is.
    """
    for line in report.lines():
        print(line)
    print(f"{what}: {folder}")
    figures = {name: value for name, value in asdict(report).items() if name != "settings"}
    return CommandResult(0, [{"folder": folder, **figures}])
