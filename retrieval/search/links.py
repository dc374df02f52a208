"""A search that follows links: passages whose titles the query names, or those that rank first mention.

A question of several hops names the first passage, and that one mentions the title of the next, which shares
no word with the question. It is the hyperlinks of IRRR and of graph systems without a graph: read from the
texts when they are needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

from corag.core.protocols import search_note
from corag.core.seeds import stable_hash
from corag.core.types import Hit, Passage
from retrieval.config import RetrieverConfig
from retrieval.search.stage import SearchStage, with_note
from retrieval.search.titles import MOST_PER_TITLE, HitTitles, StoredTitles

_DEPTH = 100  # hits of the search below, so that most of what is linked has a score of its own
_MOST_LINKS = 8  # links in a note


@dataclass(frozen=True, slots=True)
class LinkRules:
    """How links change a ranking.

    Attributes:
        seeds: hits whose texts are looked through for titles; those that the query names come first, and
            count as much as the best hit.
        weight: the share of a seed's score that a passage gets for being mentioned there.
        named_first: how many passages that the query names by title come before all others.
    """

    seeds: int = 5
    weight: float = 0.7
    named_first: int = 4

    @classmethod
    def from_config(cls, config: RetrieverConfig) -> LinkRules:
        """Return what the options say."""
        return cls(config.link_seeds, config.link_weight, config.link_named)


class LinkedRetriever(SearchStage):
    """A search whose hits include what is linked to the best of them."""

    def __init__(
        self, below: SearchStage, indexes: Sequence[StoredTitles], rules: LinkRules, *, elsewhere: bool
    ) -> None:
        """``indexes``: the titles of what is searched; ``elsewhere``: whether they are not all of it.

        What lies elsewhere, such as on a search server, is linked as far as it is among the first hits.
        """
        super().__init__(below)
        self._rules, self._indexes, self._elsewhere = rules, indexes, elsewhere
        self.fingerprint = stable_hash(f"links 3|{rules}{'|hits' * elsewhere}|{below.fingerprint}")

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first.

        A score is that of the search below, from its last hit's on, plus what links bring. The note says
        which hits came by a link.
        """
        hits = await self.below[0].search(query, max(k, _DEPTH), hop)
        ranking = (await asyncio.to_thread(self._link, query, hits))[:k]
        links = [f"'{each.passage.title}' {each.link}" for each in ranking if each.link]
        more = f" and {len(links) - _MOST_LINKS} more" if len(links) > _MOST_LINKS else ""
        note = f"by links: {', '.join(links[:_MOST_LINKS])}{more}" if links else ""
        best = [Hit(each.passage, each.score) for each in ranking]
        return with_note(best, search_note(hits), note)

    async def close(self) -> None:
        """Free the tables of titles and the stage below."""
        await super().close()
        for each in self._indexes:
            each.close()

    def _link(self, query: str, hits: Sequence[Hit]) -> list[_RankedPassage]:
        """Return the hits and what is linked to them, best first."""
        least = min((hit.score for hit in hits), default=0.0)
        score_by_id = {hit.passage.id: hit.score - least for hit in hits}
        titles = HitTitles(hit.passage for hit in hits)
        first_passages = list(
            islice(self._find_mentions(query, titles, score_by_id), self._rules.named_first)
        )
        links_by_id = {
            each.id: _RankedPassage(each, score_by_id.get(each.id, 0.0), "(named in the query)")
            for each in first_passages
        }
        for hit in hits:
            links_by_id.setdefault(hit.passage.id, _RankedPassage(hit.passage, score_by_id[hit.passage.id]))
        strength = score_by_id | dict.fromkeys(
            (each.id for each in first_passages), max(score_by_id.values(), default=0.0)
        )
        for seed in list(links_by_id.values())[: self._rules.seeds]:
            gain = self._rules.weight * strength[seed.passage.id]
            for passage in self._find_mentions(seed.passage.text, titles, score_by_id):
                score = score_by_id.get(passage.id, 0.0) + gain
                candidate = links_by_id.setdefault(passage.id, _RankedPassage(passage, -1.0))
                if passage.id != seed.passage.id and score > candidate.score:
                    candidate.score = score
                    candidate.link = candidate.link or f"(mentioned in '{seed.passage.title}')"
        highest = max((each.score for each in links_by_id.values()), default=0.0)
        for passage in first_passages:
            links_by_id[passage.id].score += highest
        return sorted(links_by_id.values(), key=lambda each: -each.score)

    def _find_mentions(
        self, text: str, hits: HitTitles, score_by_id: Mapping[str, float]
    ) -> Iterator[Passage]:
        """Yield the passages whose titles a text mentions: the best of each title, then the second best."""
        by_title: dict[int, dict[str, Passage]] = {}
        groups = [index.find(text, hits) for index in self._indexes]
        if self._elsewhere:
            groups.append(hits.find(text))
        for key, passages in chain.from_iterable(groups):
            by_title.setdefault(key, {}).update((each.id, each) for each in passages)
        best = (
            sorted(same.values(), key=lambda each: -score_by_id.get(each.id, 0.0))[:MOST_PER_TITLE]
            for same in by_title.values()
        )
        for same_place in zip_longest(*best):
            unique = {each.id: each for each in same_place if each is not None}
            yield from sorted(unique.values(), key=lambda each: -score_by_id.get(each.id, 0.0))


@dataclass(slots=True)
class _RankedPassage:
    """A passage in a ranking, and by which link it came there, "" for none."""

    passage: Passage
    score: float
    link: str = ""
