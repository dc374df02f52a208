"""Sources as text: at the end of an answer, for clients that show nothing but its text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from corag.core.citations import is_refusal
from corag.core.support import drop_same_location
from corag.core.types import Passage
from corag.service.records import passage_of

_HEAD, _DOUBTS = "Sources", "To check"
_LIST = re.compile(rf"(?:\n\n(?:{_HEAD}|{_DOUBTS}):(?:\n- [^\n]*)+)+\s*\Z")
# Titles come from documents, and chat clients read Markdown: an image in a title would be fetched. Some signs
# are Markdown at the beginning of a line only.
_MARKDOWN = re.compile(r"[\\`*\[\]<]|^[>#+-]")


def cited_sources(sources: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the sources that were read for an answer; all of them where none is known to be read."""
    return [source for source in sources if source["read"]] or list(sources)


def end_of_answer(record: Mapping[str, Any], most: int) -> str:
    r"""Return what an answer's text ends with where ``most`` sources are wanted; "" for nothing.

    Passages of one file and page are one line, by the title of the first. An answer that cites has what it
    cites, by number, and what was not found there; where it cites no passage, what was read.
    ``record``: of the answer.

    >>> leave = {"id": "1", "title": "Leave", "source": "a.pdf", "page": 3, "read": True}
    >>> end_of_answer({"answer": "30", "sources": [leave], "citations": []}, 5)
    '\n\nSources:\n- Leave (a.pdf, page 3)'
    """
    if not most or is_refusal(record["answer"]):
        return ""
    sources, claims = record["sources"], record["citations"]
    if any(claim["numbers"] for claim in claims):
        cited = {number for claim in claims for number in claim["numbers"]}
        passages = {each["number"]: passage_of(each) for each in sources if each.get("number") in cited}
        lines = [f"[{number}] {_citation(passage)}" for number, passage in passages.items()]
    else:
        lines = list(map(_citation, drop_same_location(map(passage_of, cited_sources(sources)))))
    doubts = [f"{_as_text(claim['text'])} ({_as_text(claim['fault'])})" for claim in claims if claim["fault"]]
    return _list(_HEAD, lines[:most]) + _list(_DOUBTS, doubts)


def _list(head: str, lines: Sequence[str]) -> str:
    return f"\n\n{head}:\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


def without_sources(text: str) -> str:
    r"""Return an answer's text without the list at its end: clients send it back as an earlier turn.

    >>> without_sources("Thirty days.\n\nSources:\n- Leave (a.pdf, page 3)")
    'Thirty days.'
    """
    return _LIST.sub("", text)


def _citation(passage: Passage) -> str:
    return _as_text(passage.citation or passage.id)


def _as_text(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))
