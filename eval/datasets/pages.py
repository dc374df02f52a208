"""Ids of pages, for corpora whose passages are named after the page that they are of."""

from __future__ import annotations

import re
from collections.abc import Iterable


def page_id(passage_id: str) -> str:
    """Return the id of the page that a passage is of: its own id up to the first "-" or "#".

    >>> [page_id(passage) for passage in ("290", "290-3", "290#3")]
    ['290', '290', '290']
    """
    return re.split("[-#]", passage_id, maxsplit=1)[0].strip()


def page_ids(passage_ids: Iterable[str]) -> list[str]:
    """Return the ids of the different pages of some passages, in order of first appearance."""
    return list(dict.fromkeys(map(page_id, passage_ids)))
