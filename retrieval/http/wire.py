"""Passages and hits as JSON, the same on both ends of the wire.

Apart from both, since the client must not load the web server, nor the server the client.
"""

from __future__ import annotations

from typing import Any

from corag.core.errors import DataError
from corag.core.types import Hit, Passage


def passage_to_record(passage: Passage) -> dict[str, str | int]:
    """Return {"id", "title", "text"}, with "source" and "page" if they are known."""
    return {"id": passage.id, "title": passage.title, "text": passage.text, **passage.place}


def passage_from_wire(record: dict[str, Any]) -> Passage:
    """Read what :func:`passage_to_record` wrote. Raises :class:`DataError` if that is no passage."""
    id_, title, text, source = (_field(record, name, str) for name in ("id", "title", "text", "source"))
    return Passage(id_, title, text, source, _field(record, "page", (int, str)))


def hit_to_record(hit: Hit) -> dict[str, str | float]:
    """Return a passage's record with its "score"."""
    return {**passage_to_record(hit.passage), "score": hit.score}


def hit_from_wire(record: dict[str, Any]) -> Hit:
    """Read what :func:`hit_to_record` wrote. Raises :class:`DataError` if that is no hit."""
    return Hit(passage_from_wire(record), float(_field(record, "score", (int, float))))


_DEFAULTS: dict[str, str | int] = {"source": "", "page": 0}  # what a record leaves out where it is not known


def _field(record: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(record, dict):
        raise DataError(f"a passage is {record!r:.40}")
    value = record.get(name, _DEFAULTS.get(name))
    if not isinstance(value, kind):
        raise DataError(f"the '{name}' of a passage is {value!r:.40}")
    return value
