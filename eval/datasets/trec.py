"""TREC's judgements of passages (qrels), which BEIR has with a header."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from corag.core.errors import DataError
from corag.data.packed import open_bytes
from corag.data.text import read_lines

Judgements = Mapping[str, Mapping[str, int]]
"""Grades by question and passage: above 0 is relevant."""

_MAX_GRADE = 1000  # grade: trec_eval keeps a count for each up to it
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


def read_judgements(path: str | Path) -> dict[str, dict[str, int]]:
    """Read a file of judgements whole.

    Raises :class:`DataError` for the first line that is none, whose grade is no whole number, or that grades
    a passage otherwise than a line before it.
    """
    judgements: dict[str, dict[str, int]] = {}
    for where, query, passage, grade in judgement_lines(path, _refuse):
        if not grade.is_integer() or abs(grade) > _MAX_GRADE:
            raise DataError(
                f"{where}: a grade must be a whole number such as 0, 1 or 2, but it is {grade:g}."
            )
        before = judgements.setdefault(query, {}).setdefault(passage, int(grade))
        if before != grade:
            raise DataError(
                f"{where}: the passage '{passage}' has the grade {grade:g} for the query '{query}', but "
                f"{before} in a line before: keep one of them."
            )
    if not judgements:
        raise DataError(f"'{path}' has no judgements: expected lines of query, 0, passage and grade.")
    return judgements


def _refuse(where: str, reason: str) -> None:
    raise DataError(f"{where}: {reason}. Mend the line or take it out.")
