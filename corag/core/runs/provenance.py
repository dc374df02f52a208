"""What made something: its settings and what was read, by content; two are compared by option paths.

Runs, the cells of a sweep, the stages of training, chains, rows, adapters and indexes are all compared so.
Where others read a manifest (manifest.json, corag_index.json, training.json, report.json), this is part of
that. Everything else writes ``provenance.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from corag.core.errors import ConfigError, CoragError
from corag.core.options.names import Mark, marked_options
from corag.core.seeds import stable_hash
from corag.core.system.files import write_atomically

PROVENANCE = "provenance.json"
_MOST_INPUTS = 5  # that a message names
GO_ON = "Give the same settings to resume it, or choose another 'out'."


def settings_of(config: Any) -> dict[str, Any]:
    """Return the options that results depend on, nested as ``asdict`` nests them.

    Those of the environment, also of sections, are there with their defaults, whatever their values.
    """
    environment = marked_options(type(config), Mark.ENVIRONMENT)
    values = {
        each.name: each.default if each.name in environment else getattr(config, each.name)
        for each in fields(config)
    }
    return {name: settings_of(value) if is_dataclass(value) else value for name, value in values.items()}


class Input(NamedTuple):
    """Something that was read: ``hash``, of its content, is what is compared; ``name`` is for a reader."""

    name: str
    hash: str

    def __str__(self) -> str:
        return f"{Path(self.name).name} ({self.hash or 'not here'})"


@dataclass(frozen=True)
class Provenance:
    """What something was made with and from.

    Attributes:
        settings: options, and what else matters to the result, as they come back from a file, in which a
            tuple is a list.
        inputs: what was read, by the part that it has in the making.
        finished: when it was finished, "" for not yet. Two makings of the same differ in this alone, so what
            reads a result takes the hash of its provenance as an input and is made anew after it.
    """

    settings: Mapping[str, Any]
    inputs: Mapping[str, Sequence[Input]] = field(default_factory=dict)
    finished: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", json.loads(json.dumps(self.settings, default=str)))

    @classmethod
    def read(cls, file: Path) -> Provenance | None:
        """Read a file of its own; None if there is none, or none that this version understands."""
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            inputs = {part: [Input(*each) for each in entries] for part, entries in record["inputs"].items()}
            return cls(record["settings"], inputs, record["finished"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, file: Path) -> None:
        """Write it to a file of its own, replacing what is there."""
        write_atomically(file, json.dumps(asdict(self), indent=1) + "\n")

    def finish(self, file: Path) -> None:
        """Write it as that of something finished now."""
        replace(self, finished=datetime.now(UTC).isoformat()).write(file)

    def is_finished(self, file: Path) -> bool:
        """Whether a file says that this very thing is finished."""
        earlier = Provenance.read(file)
        return earlier is not None and bool(earlier.finished) and not earlier.differences(self)

    @property
    def digest(self) -> str:
        """8 hexadecimal digits of the settings, for a folder's name."""
        return stable_hash(json.dumps(self.settings, sort_keys=True))[:8]

    def differences(self, other: Provenance) -> list[str]:
        """Name what differs from another, as "corag.max_hops: here -> there"; the time does not count."""
        lines = []
        for part in dict.fromkeys([*self.inputs, *other.inputs]):
            here, there = self.inputs.get(part, ()), other.inputs.get(part, ())
            if [each.hash for each in here] != [each.hash for each in there]:
                lines.append(f"{part}: {_list_inputs(here, there)} -> {_list_inputs(there, here)}")
        return lines + _differences(_by_path(self.settings), _by_path(other.settings))

    def refuse_other(
        self,
        what: str,
        earlier: Provenance,
        *,
        than: str = "",
        advice: str = GO_ON,
        error: type[CoragError] = ConfigError,
    ) -> None:
        """Raise an error that names what differs from an earlier one, if something does.

        ``earlier`` is that of ``what``; this one is what is asked for now, or that of another thing,
        ``than``. ``advice``: a sentence on what to do.
        """
        if changes := earlier.differences(self):
            made = f"{what} and {than} were made with different" if than else f"{what} was made with other"
            raise error("\n  ".join([f"{made} settings:", *changes]) + f"\n{advice}")


def _list_inputs(inputs: Sequence[Input], others: Sequence[Input]) -> str:
    """Name the inputs that the others lack, or all where only their order differs."""
    hashes = {each.hash for each in others}
    missing = [each for each in inputs if each.hash not in hashes] or inputs
    more = [f"and {len(missing) - _MOST_INPUTS:,} more"] if len(missing) > _MOST_INPUTS else []
    return ", ".join([*map(str, missing[:_MOST_INPUTS]), *more]) or "(none)"


def _by_path(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with options where their paths have them: a method's under its name."""
    if not isinstance(options := settings.get("options"), dict):
        return dict(settings)
    others = {name: value for name, value in settings.items() if name != "options"}
    method = settings.get("method", "")
    return others | ({method: options} if method and method not in options else options)


def _differences(before: Any, after: Any, name: str = "") -> list[str]:
    """List every setting that differs between two JSON values, as "name: before -> after"."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for key in dict.fromkeys([*before, *after])
            for line in _differences(before.get(key), after.get(key), f"{name}.{key}" if name else key)
        ]
    if _is_table(before) and _is_table(after) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for index, pair in pairs for line in _differences(*pair, f"{name}[{index}]")]
    return [] if before == after else [f"{name}: {json.dumps(before)} -> {json.dumps(after)}"]


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)
