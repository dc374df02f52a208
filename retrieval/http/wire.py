"""Passages and hits as JSON, the same on both ends of the wire.

Apart from both, since the client must not load the web server, nor the server the client.
"""

from __future__ import annotations

from typing import Any

from corag.core.types import Hit, Passage
from corag.core.web.replies import MalformedReplyError, value_at


def passage_to_record(passage: Passage) -> dict[str, str | int]:
    """Return {"id", "title", "text"}, with "source" and "page" if they are known."""
    return {"id": passage.id, "title": passage.title, "text": passage.text, **passage.place}


def passage_from_wire(record: Any) -> Passage:
    """Read what :func:`passage_to_record` wrote. Raises :class:`MalformedReplyError` if it is no passage."""
    id_, title, text = (value_at(record, name, kind=str) for name in ("id", "title", "text"))
    source, page = record.get("source", ""), record.get("page", 0)
    if not isinstance(source, str) or not isinstance(page, int | str):
        raise MalformedReplyError(f"a passage of source {source!r:.40} and page {page!r:.40}")
    return Passage(id_, title, text, source, page)


def hit_to_record(hit: Hit) -> dict[str, str | float]:
    """Return a passage's record with its "score"."""
    return {**passage_to_record(hit.passage), "score": hit.score}


def hit_from_wire(record: Any) -> Hit:
    """Read what :func:`hit_to_record` wrote. Raises :class:`MalformedReplyError` if that is no hit."""
    return Hit(passage_from_wire(record), value_at(record, "score", kind=float))
