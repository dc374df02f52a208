"""What a command ends with: its exit status, and the figures that ``--json`` prints at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ended:
    """A command that returns this has said all that a person wants to know; the rest is for programs.

    Attributes:
        status: the exit status.
        records: what ``--json`` prints, a line each; JSON values.
    """

    status: int
    records: Sequence[Mapping[str, Any]]
