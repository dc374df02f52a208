"""Sources as text: at the end of an answer, for clients that show nothing but its text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from corag.core.support import drop_same_location
from corag.core.types import Passage
from corag.service.records import passage_of

_HEAD = "\n\nSources:\n"
_NOTHING_FOUND = "\n\n(No passage was found for this.)"
_LIST = re.compile(rf"(?:\n\nSources:\n(?:- [^\n]*(?:\n|\Z))+|{re.escape(_NOTHING_FOUND)}\s*)\Z")
# Titles come from documents, and chat clients read Markdown: an image in a title would be fetched. Some signs
# are Markdown at the beginning of a line only.
_MARKDOWN = re.compile(r"[\\`*\[\]<]|^[>#+-]")


def cited_sources(sources: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the sources that were read for an answer; all of them where none is known to be read."""
    return [source for source in sources if source["read"]] or list(sources)


def list_of_sources(sources: Sequence[Mapping[str, Any]], most: int) -> str:
    r"""Return the end of an answer's text that lists what it rests on; "" for nothing.

    Passages of one file and page are one line, by the title of the first. ``sources``: as records of answers
    have them, those that carry the answer first.

    >>> list_of_sources([{"id": "1", "title": "Leave", "source": "a.pdf", "page": 3, "read": True}], 5)
    '\n\nSources:\n- Leave (a.pdf, page 3)'
    """
    places = drop_same_location(map(passage_of, cited_sources(sources)))
    return _HEAD + "\n".join(f"- {_citation(each)}" for each in places[:most]) if places and most else ""


def end_of_answer(record: Mapping[str, Any], most: int) -> str:
    """Return what an answer's text ends with where ``most`` sources are wanted; "" for nothing.

    An answer for which all searches came back empty says so: it looks like any other. ``record``: of the
    answer, with ``sources`` and ``steps``.
    """
    searches = [step for step in record["steps"] if step["kind"] == "search"]
    if most and searches and not record["sources"] and not any(step.get("hits") for step in searches):
        return _NOTHING_FOUND
    return list_of_sources(record["sources"], most)


def without_sources(text: str) -> str:
    r"""Return an answer's text without the list or note at its end: clients send it back as an earlier turn.

    >>> without_sources("Thirty days.\n\nSources:\n- Leave (a.pdf, page 3)")
    'Thirty days.'
    """
    return _LIST.sub("", text)


def _citation(passage: Passage) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", " ".join((passage.citation or passage.id).split()))
