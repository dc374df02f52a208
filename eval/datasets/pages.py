"""Ids of pages, for corpora whose passages are named after the page that they are of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def page_id(passage_id: str) -> str:
    """Return the id of the page that a passage is of: its own id up to the first "-" or "#".

    >>> [page_id(passage) for passage in ("290", "290-3", "290#3")]
    ['290', '290', '290']
    """
    return re.split("[-#]", passage_id, maxsplit=1)[0].strip()


def page_ids(passage_ids: Iterable[str]) -> list[str]:
    """Return the ids of the different pages of some passages, in order of first appearance."""
    return list(dict.fromkeys(map(page_id, passage_ids)))


def judged_pages(relevant: Sequence[str], pages: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the sets of pages that each bear an answer out by judgements; none if these are of passages.

    Args:
        relevant: ids that are judged relevant.
        pages: the question's own sets. Those that are relevant whole stay sets; other pages are one each.

    >>> judged_pages(["1", "2", "7"], [("1", "2"), ("3",)])
    (('1', '2'), ('7',))
    >>> judged_pages(["1-4", "7"], [("1", "2")])
    ()
    """
    if any(page_id(name) != name for name in relevant):
        return ()
    whole = [tuple(each) for each in pages if set(each) <= set(relevant)]
    whole_pages = {page for each in whole for page in each}
    return (*whole, *((page,) for page in relevant if page not in whole_pages))
