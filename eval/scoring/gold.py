"""Which gold passages of a question a run found, and where: the one rule of tables, rankings and reports.

A gold passage may be called by an id, by a page, or by a title or file where the index has other ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from corag.core.runs.rows import SavedRow
from corag.core.tools import SearchStep
from corag.core.types import Question
from eval.datasets.gold_names import TITLE, bare_name, is_name, passage_names
from eval.datasets.pages import page_id
from retrieval.index.aliases import NO_ALIASES, Aliases

Identities = Callable[[str], Collection[str]]
"""Returns what a passage may be called by gold passages, by its id."""


@dataclass(frozen=True, slots=True)
class FoundGold:
    """The gold passages of a question, with what a run collected of them.

    ``places``: by what the index calls each, its place among the different passages (or pages) collected,
    from 1; 0 if it was missed. ``identities``: what a passage may be called.
    """

    places: Mapping[str, int]
    identities: Identities

    def share(self, k: int) -> float:
        """Return the share that stands at the first ``k`` places."""
        return sum(0 < place <= k for place in self.places.values()) / len(self.places)

    def is_gold(self, passage_id: str) -> bool:
        """Whether a passage is one of them."""
        return not self.places.keys().isdisjoint(self.identities(passage_id))


def find_gold(row: SavedRow, aliases: Aliases = NO_ALIASES, k: int = 0) -> FoundGold | None:
    """Return what a row collected of its question's gold passages; None if it has none.

    Where only searches tell what ids there are (``aliases.titled``), they go by id or by title, whichever
    finds more at the first ``k`` places; 0 for all.
    """
    gold = gold_ids(row.question)
    if not gold:
        return None
    identities = passage_identities(row, aliases)
    if row.question.pages:
        return FoundGold(gold_places(map(page_id, row.passage_ids), gold), identities)
    by_title = [f"{TITLE}{title}" for title in row.question.titles] if aliases.titled else []
    choices = [
        FoundGold(gold_places(row.passage_ids, each, identities), identities)
        for each in (gold, by_title)
        if each
    ]
    return max(choices, key=lambda each: each.share(k or len(row.passage_ids)))


def passage_identities(row: SavedRow, aliases: Aliases = NO_ALIASES) -> Identities:
    """Return what gold passages of a row's question call a passage: its page, or else its ids and names."""
    if row.question.pages:
        return lambda passage_id: (page_id(passage_id),)
    names = _hit_names(row, aliases)
    return lambda passage_id: aliases.names([passage_id]).union(names.get(passage_id, ()))


def gold_ids(question: Question) -> Sequence[str]:
    """Return the gold passages of a question, or the gold pages, if it is by page that they are known."""
    return list(dict.fromkeys(page for group in question.pages for page in group)) or question.supporting


def gold_places(
    collected: Iterable[str], gold: Iterable[str], identities: Identities = lambda name: (name,)
) -> dict[str, int]:
    """Return the place of each gold name among the different names collected, from 1; 0 if it is missed.

    >>> gold_places(["a", "b", "b", "c"], ["c", "d"])
    {'c': 3, 'd': 0}
    """
    places = dict.fromkeys(gold, 0)
    for place, name in enumerate(dict.fromkeys(collected), 1):
        for each in identities(name):
            if places.get(each) == 0:
                places[each] = place
    return places


def _needs_hits(row: SavedRow, aliases: Aliases) -> bool:
    """Whether gold passages are known by what searches returned of passages, and not by ids alone."""
    gold = row.question.supporting
    return bool(gold) and (aliases.titled or any(map(is_name, gold)))


def _hit_names(row: SavedRow, aliases: Aliases) -> Mapping[str, Collection[str]]:
    """Return what the passages that a row's searches found are called by gold passages, by id.

    That is by title and file, if gold passages are known by these. With ``aliases`` that are titled also as
    they stand, without what says which of them it is.
    """
    if not _needs_hits(row, aliases):
        return {}
    hits = [hit for step in row.steps if isinstance(step, SearchStep) for hit in step.hits]
    names = {hit.passage.id: set(passage_names(hit.passage)) for hit in hits}
    if aliases.titled:
        for each in names.values():
            each.update([bare_name(name) for name in each])
    return names
