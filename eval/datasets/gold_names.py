"""Gold passages by name: a file, a page of one, or a title, where ids are hashes.

In a question file "supporting" may have any of them, as answers and ``corag search`` show them::

    {"question": "...", "answers": ["..."], "supporting": ["manuals/tr9.pdf, page 3", "Handbook > Leave"]}

A run's rows have them with what they are, ``file:manuals/tr9.pdf, page 3`` and ``title:Handbook > Leave``.
Such a one is found where any passage of that file, page or heading is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from corag.core.errors import DataError
from corag.core.types import Passage

FILE, TITLE = "file:", "title:"
_HEADING_SEPARATOR = " > "  # between a heading and the ones below it, in the titles of passages


def is_name(gold: str) -> bool:
    """Whether a gold passage is given as what it is, and so by no id."""
    return gold.startswith((FILE, TITLE))


def bare_name(name: str) -> str:
    """Return a name without what says what it is.

    >>> bare_name("file:a.pdf, page 3")
    'a.pdf, page 3'
    """
    return name.partition(":")[2] if is_name(name) else name


def headings(title: str) -> list[str]:
    """Return a passage's title, and those of the headings above it.

    >>> headings("Leave > Sick")
    ['Leave', 'Leave > Sick']
    """
    parts = title.split(_HEADING_SEPARATOR)
    return [_HEADING_SEPARATOR.join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def passage_names(passage: Passage) -> Iterator[str]:
    """Yield the names under which a passage may be gold.

    >>> list(passage_names(Passage("1", "Leave > Sick", "...", "handbook.pdf", 3)))
    ['title:Leave', 'title:Leave > Sick', 'file:handbook.pdf', 'file:handbook.pdf, page 3']
    """
    yield from (f"{TITLE}{each}" for each in headings(passage.title) if passage.title)
    if passage.source:
        yield f"{FILE}{passage.source}"
        if passage.page:
            yield f"{FILE}{passage.origin}"


def find_name(gold: str, names: Collection[str]) -> str:
    """Return the name, among those of an index, that a gold passage is given by; "" if it is none of them.

    A file may be given with less or more of the folders that lead to it. Raises :class:`DataError` if several
    files are meant.

    >>> names = {"file:a.pdf", "file:a.pdf, page 3", "title:Leave"}
    >>> find_name("docs/a.pdf, page 3", names), find_name("Leave", names)
    ('file:a.pdf, page 3', 'title:Leave')
    """
    for name in (gold, f"{FILE}{gold}", f"{TITLE}{gold}"):
        if name in names:
            return name
    path = gold.removeprefix(FILE)
    files = sorted(
        name
        for name in names
        if name.startswith(FILE)
        and (name.endswith(f"/{path}") or path.endswith(f"/{name.removeprefix(FILE)}"))
    )
    if len(files) > 1:
        examples = ", ".join(name.removeprefix(FILE) for name in files[:3])
        raise DataError(
            f"supporting names '{gold}', which may be any of {len(files)} files of the index ({examples}): "
            "give more of its path."
        )
    return files[0] if files else ""
