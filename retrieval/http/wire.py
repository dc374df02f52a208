"""Passages and hits as JSON, the same on both ends of the wire.

Apart from both, since the client must not load the web server, nor the server the client.
"""

from __future__ import annotations

from typing import Any

from core.types import Hit, Passage


def passage_to_record(passage: Passage) -> dict[str, str | int]:
    """Return {"id", "title", "text"}, with "source" and "page" if they are known."""
    return {"id": passage.id, "title": passage.title, "text": passage.text, **passage.place}


def passage_from_wire(record: dict[str, Any]) -> Passage:
    """Read what :func:`passage_to_record` wrote."""
    place = record.get("source", ""), record.get("page", 0)
    return Passage(record["id"], record["title"], record["text"], *place)


def hit_to_record(hit: Hit) -> dict[str, str | float]:
    """Return a passage's record with its "score"."""
    return {**passage_to_record(hit.passage), "score": hit.score}


def hit_from_wire(record: dict[str, Any]) -> Hit:
    """Read what :func:`hit_to_record` wrote."""
    return Hit(passage_from_wire(record), float(record["score"]))
