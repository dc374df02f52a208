"""Failed questions, for the end of a command: how many, the commonest reasons, what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from corag.core.language.text import printable

COMMONEST = 3
TRY_AGAIN = "The same command tries them again"
# What differs between failures of one reason: a query, an id, a number of tokens or seconds.
_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d.,]*")
_PLACE = re.compile(r", line \d+\)$")
# Names of our own errors say less than their sentences; those of Python's are all that some errors say.
_OURS = re.compile(
    r"(?:SearchFailed|RequestRefused|BudgetExhausted|IndexMismatch|Backend|Config|Data)Error: "
)


@dataclass(frozen=True, slots=True)
class Failures:
    """How many of ``questions`` failed, by the first line of each reason, the commonest first.

    Values add. Reasons that differ in numbers and quoted words only are one; its first text stands for all.

    >>> Failures.count(["", "DataError: 'a' has 9 words.", "DataError: 'b' has 12 words."]).reasons
    {"'a' has 9 words.": 2}
    """

    questions: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def count(cls, errors: Iterable[str]) -> Failures:
        """Count the errors of all questions, "" for one that did not fail."""
        texts = list(errors)
        return cls(len(texts), _group((_first_line(error), 1) for error in texts if error))

    @property
    def failed(self) -> int:
        """How many failed."""
        return sum(self.reasons.values())

    def __add__(self, other: Failures) -> Failures:
        reasons = _group([*self.reasons.items(), *other.reasons.items()])
        return Failures(self.questions + other.questions, reasons)

    def commonest(self) -> Iterator[str]:
        """Yield a line for each of the commonest reasons, and one for the others, if there are more.

        The last says where tracebacks are, if code of the user's failed.
        """
        commonest = list(self.reasons.items())[:COMMONEST]
        for reason, count in commonest:
            yield f"{count} x {reason}"
        if rest := self.failed - sum(count for _, count in commonest):
            yield f"{rest} x other reasons"
        if any(_PLACE.search(reason) for reason in self.reasons):
            yield "The whole traceback of each is its 'error' in traces.jsonl of the run's folder."

    def lines(self, max_failed: int, advice: str = TRY_AGAIN) -> Iterator[str]:
        """Yield the lines of a message, none if nothing failed.

        ``advice``: how to answer the questions again, without a full stop.
        """
        if not self.failed:
            return
        yield f"corag: {self.failed:,} of {self.questions:,} questions failed:"
        yield from (f"  {line}" for line in self.commonest())
        too_many = self.failed > max_failed
        way_out = "" if not too_many else f"; max_failed={self.failed} accepts as many"
        yield f"{advice}{way_out}."


def _first_line(error: str) -> str:
    line = _OURS.sub("", error.strip(), count=1).partition("\n")[0].strip()
    return printable(line) or "no reason was given"  # a server's words may be in it


def _group(counts_by_text: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Add up counts of reasons that differ in particulars only, under the first one's text."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for reason, count in counts_by_text:
        counts[first.setdefault(_PARTICULAR.sub("...", reason), reason)] += count
    return dict(counts.most_common())  # of equals the first one met stays first
