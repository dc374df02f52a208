"""What became of the records of a question file: kept, left out for a reason, or read with a remark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console

from corag.core.errors import DataError

_MAX_LOCATIONS = 3  # places that a line names
_MAX_REASONS = 8  # reasons, and remarks, that are listed
NO_GOLD = "no gold answer: answered, but not scored"
"""The remark on a question that is not scored."""


_silent_sources: set[str] = set()


def silence_remarks(source: str) -> None:
    """Print no remarks on a source's records, which had theirs when it was written, but what is left out."""
    _silent_sources.add(source)


@dataclass
class Tally:
    """How often something happened, and where first."""

    count: int = 0
    locations: list[str] = field(default_factory=list)

    def add(self, location: str) -> None:
        """Count once more."""
        self.count += 1
        if len(self.locations) < _MAX_LOCATIONS:
            self.locations.append(location)

    def __str__(self) -> str:
        return ", ".join([*self.locations, *["..."] * (self.count > len(self.locations))])


@dataclass
class QuestionReport:
    """What reading a question file kept and left out; filled while its records stream by.

    Attributes:
        source: the file, by which places begin.
        strict: refuse the file for the first record that would be left out or remarked on.
        encoding: of the file; "" to find it out.
        delimiter: between the cells of a table; "" for that of its ending.
        question_count: records that became a question.
        drops: those that did not, by reason.
        remarks: what was guessed, made or passed over in records that were kept.
    """

    source: str
    strict: bool = False
    encoding: str = ""
    delimiter: str = ""
    question_count: int = 0
    drops: dict[str, Tally] = field(default_factory=dict)
    remarks: dict[str, Tally] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """How many records are left out."""
        return sum(each.count for each in self.drops.values())

    @property
    def records(self) -> int:
        """How many records were read: each is kept or left out."""
        return self.question_count + self.left_out

    def drop(self, where: str, reason: str) -> None:
        """Count a record that cannot be read. Raises :class:`DataError` where reading is strict."""
        if self.strict:
            raise DataError(f"{where}: {reason}")
        self._add(self.drops, where, reason)

    def remark(self, where: str, text: str) -> None:
        """Count a record that was kept in spite of something. Raises :class:`DataError` if strict."""
        if self.strict:
            raise DataError(f"{where}: {text}")
        self._add(self.remarks, where, text)

    def note_unscored(self, where: str, gold: str) -> None:
        """Count a question without a gold answer, of which ``gold`` is the field if all should have one.

        Raises :class:`DataError` for such a field where reading is strict.
        """
        if self.strict and gold:
            raise DataError(f"{where}: field '{gold}' is missing or empty: give at least one gold answer.")
        self._add(self.remarks, where, NO_GOLD)

    def _add(self, tallies: dict[str, Tally], where: str, text: str) -> None:
        tallies.setdefault(text.rstrip("."), Tally()).add(where.removeprefix(f"{self.source}, "))

    def lines(self) -> list[str]:
        """Return what a user must know of the reading: no line where every record was plain."""
        lines = []
        if self.drops:
            lines.append(
                f"{self.source}: {self.question_count:,} of {self.records:,} records are read, "
                f"{self.left_out:,} left out (strict refuses such a file):"
            )
            lines += _tally_lines(self.drops)
        elif self.remarks:
            lines.append(f"{self.source}: {self.question_count:,} record(s) read.")
        return lines + _tally_lines(self.remarks)

    def show(self) -> None:
        """Print the lines on standard error, if they are news."""
        if self.source in _silent_sources and not self.drops:
            return
        console = Console(stderr=True, highlight=False)
        for number, line in enumerate(self.lines()):
            console.print(line if number else f"corag: {line}", soft_wrap=True, markup=False)


def _tally_lines(tallies: Mapping[str, Tally]) -> list[str]:
    by_count = sorted(tallies.items(), key=lambda each: -each[1].count)
    lines = [f"  {tally.count:,}: {text} ({tally})" for text, tally in by_count[:_MAX_REASONS]]
    rest = by_count[_MAX_REASONS:]
    return lines + (
        [f"  {sum(tally.count for _, tally in rest):,}: for {len(rest)} further reasons"] if rest else []
    )
