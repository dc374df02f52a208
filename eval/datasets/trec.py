"""TREC's judgements of passages (qrels), which BEIR has with a header."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from corag.data.packed import open_bytes
from corag.data.text import read_lines

_HEADERS = ("score", "rel", "relevance", "label", "judgment", "judgement")
_JUDGEMENT = (
    "expected a query's id, a passage's id and a number, separated by tabs or spaces (or TREC's four "
    "columns), but found {!r:.80}"
)


def judgement_lines(
    path: str | Path, drop: Callable[[str, str], None]
) -> Iterator[tuple[str, str, str, float]]:
    """Yield the place, query, passage and grade of each line of a file of judgements.

    Lines are BEIR's (query, passage, grade) or TREC's (query, iteration, passage, grade), separated by tabs
    or spaces, with a header or without. ``drop`` is given the place of any other line and what is wrong.
    """
    with open_bytes(path) as stream:
        for number, line in enumerate(read_lines(stream, path), 1):
            cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
            # The first line may have the names of the columns.
            if not line.strip() or (number == 1 and cells[-1].lower() in _HEADERS):
                continue
            where = f"{path}, line {number}"
            try:
                query, *_, passage, grade = cells if len(cells) in (3, 4) else []
                yield where, query, passage, float(grade)
            except ValueError:
                drop(where, _JUDGEMENT.format(cells))
