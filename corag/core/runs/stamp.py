"""One way to know that something is up to date: what it was made from, what made it, whether it is finished.

Runs, the cells of a sweep, the stages of training, rows, adapters and indexes are all compared as stamps.
Where others read a manifest (manifest.json, corag_index.json, training.json, report.json), the stamp is read
out of that. Everything else writes ``stamp.json``; an unfinished
index, whose folder may be emptied, has a name of its own for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from corag.core.errors import ConfigError, CoragError
from corag.core.files import write_atomically

STAMP = "stamp.json"
_MOST_INPUTS = 5  # that a message names
GO_ON = "Give the same settings to resume it, or choose another --out."


class Input(NamedTuple):
    """Something that was read: ``hash``, of its content, is what is compared; ``name`` is for a reader."""

    name: str
    hash: str

    def __str__(self) -> str:
        return f"{Path(self.name).name} ({self.hash or 'not here'})"


@dataclass(frozen=True)
class Stamp:
    """What something was made with and from.

    Attributes:
        made_with: settings, and the versions that matter to the result; JSON values.
        made_from: what was read, by the part that it has in the making.
        finished: when it was finished, "" for not yet. Two makings of the same differ in this alone, so who
            reads a result takes the hash of its stamp as an input and is made anew after it.
    """

    made_with: Mapping[str, Any]
    made_from: Mapping[str, Sequence[Input]] = field(default_factory=dict)
    finished: str = ""

    @classmethod
    def read(cls, file: Path) -> Stamp | None:
        """Read a stamp; None if there is none, or none that this version understands."""
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            inputs = {
                part: [Input(*each) for each in entries] for part, entries in record["made_from"].items()
            }
            return cls(record["made_with"], inputs, record["finished"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, file: Path) -> None:
        """Write the stamp, replacing what is there."""
        write_atomically(file, json.dumps(asdict(self), indent=1, default=str) + "\n")

    def finish(self, file: Path) -> None:
        """Write the stamp as that of something finished now."""
        replace(self, finished=datetime.now(UTC).isoformat()).write(file)

    def differences(self, other: Stamp) -> list[str]:
        """Name what differs from another stamp, as "name: here -> there"; the time does not count."""
        lines = []
        for part in dict.fromkeys([*self.made_from, *other.made_from]):
            here, there = self.made_from.get(part, ()), other.made_from.get(part, ())
            if [each.hash for each in here] != [each.hash for each in there]:
                lines.append(f"{part}: {_list_inputs(here, there)} -> {_list_inputs(there, here)}")
        return lines + differences(*(_as_json(each.made_with) for each in (self, other)))


def _list_inputs(inputs: Sequence[Input], others: Sequence[Input]) -> str:
    """Name the inputs that the others lack, or all where only their order differs."""
    hashes = {each.hash for each in others}
    missing = [each for each in inputs if each.hash not in hashes] or inputs
    more = [f"and {len(missing) - _MOST_INPUTS:,} more"] if len(missing) > _MOST_INPUTS else []
    return ", ".join([*map(str, missing[:_MOST_INPUTS]), *more]) or "(none)"


def is_finished(file: Path, stamp: Stamp) -> bool:
    """Whether a stamp file is that of this very thing, and finished."""
    earlier = Stamp.read(file)
    return earlier is not None and bool(earlier.finished) and not earlier.differences(stamp)


def refuse_differences(
    what: str,
    before: Stamp,
    after: Stamp,
    *,
    than: str = "",
    advice: str = GO_ON,
    error: type[CoragError] = ConfigError,
    explain: Callable[[str, Stamp, Stamp], str] = lambda line, before, after: line,
) -> None:
    """Raise an error that shows how two stamps differ, if they do.

    ``before`` is that of ``what``; ``after`` is what is asked for now, or that of ``than``, another thing.
    ``advice``: a sentence on what to do. ``explain``: words a line that names a difference.
    """
    if changes := [explain(line, before, after) for line in before.differences(after)]:
        sentence = f"{what} and {than} were made with different" if than else f"{what} was made with other"
        raise error(f"{sentence} settings:\n  " + "\n  ".join(changes) + f"\n{advice}")


def differences(before: Any, after: Any, name: str = "") -> list[str]:
    """List every setting that differs between two JSON values, as "name: before -> after"."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for key in dict.fromkeys([*before, *after])
            for line in differences(before.get(key), after.get(key), f"{name}.{key}" if name else key)
        ]
    if _is_table(before) and _is_table(after) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, f"{name}[{index}]")]
    return [] if before == after else [f"{name}: {json.dumps(before)} -> {json.dumps(after)}"]


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _as_json(values: Mapping[str, Any]) -> Any:
    """Return values as they come back from a file, in which a tuple is a list."""
    return json.loads(json.dumps(values, default=str))
