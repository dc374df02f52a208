"""Long retrieval units (LongRAG): which passages are read together. A file has one unit per line.

``{"id": "unit-1", "passages": ["id of a passage", ...]}``, as 'corag index --long_units' writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from corag.core.errors import DataError
from corag.core.system.files import keep_read, read_jsonl, write_atomically


@dataclass(frozen=True, slots=True)
class Unit:
    """A group of related passages, by id and in the order in which they are read."""

    id: str
    passage_ids: tuple[str, ...]


@keep_read
def load_units(path: str) -> Mapping[str, Unit]:
    """Read a file of units; return the unit of every passage by the passage's id.

    Raises :class:`DataError` for a line that is no unit, an id of two units, or a passage in two of them.
    """
    units: dict[str, Unit] = {}
    seen: set[tuple[str, str]] = set()
    for number, record in enumerate(read_jsonl(path), 1):
        identifier, passages = record.get("id"), record.get("passages")
        if not isinstance(identifier, str) or not isinstance(passages, list) or not passages:
            raise DataError(
                f"{path}, line {number}: expected a unit with an 'id' and a list of 'passages', but found: "
                f"{', '.join(sorted(record)) or 'nothing'}. 'corag index --long_units' writes them."
            )
        unit = Unit(identifier, tuple(map(str, passages)))
        names = {("unit", identifier), *(("passage", passage) for passage in unit.passage_ids)}
        if repeated := sorted(names & seen):
            what, name = repeated[0]
            raise DataError(f"{path}, line {number}: the {what} '{name}' is in an earlier line already.")
        seen |= names
        units |= dict.fromkeys(unit.passage_ids, unit)
    return units


def write_units(path: Path, units: Iterable[Unit]) -> None:
    """Write a file of units."""
    lines = (json.dumps({"id": unit.id, "passages": unit.passage_ids}, ensure_ascii=False) for unit in units)
    write_atomically(path, "".join(f"{line}\n" for line in lines))
