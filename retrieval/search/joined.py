"""Several searches as one: indexes that are fused, and the parts of one index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from corag.core.errors import IndexMismatchError
from corag.core.fusion import fuse
from corag.core.gather import gather
from corag.core.protocols import search_note
from corag.core.seeds import stable_hash
from corag.core.types import Hit
from retrieval.search.stage import SearchStage, with_note


class FusedRetriever(SearchStage):
    """Several indexes as one, by reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009).

    Each is searched ``depth`` deep at the same time, deeper if more is asked for: a passage that two of them
    rank 50th shall beat what one ranks 30th.
    """

    def __init__(self, below: Sequence[SearchStage], *, depth: int) -> None:
        super().__init__(*below)
        self._depth = depth
        inner = "|".join(each.fingerprint for each in below)
        self.fingerprint = stable_hash(f"rrf|{depth}|{inner}")

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first; scores are sums of reciprocal ranks.

        Raises :class:`IndexMismatchError` if an id means different passages: only one could ever be found.
        """
        depth = max(k, self._depth)
        rankings = await gather(each.search(query, depth, hop) for each in self.below)
        texts: dict[str, str] = {}
        for hit in chain.from_iterable(rankings):
            if texts.setdefault(hit.passage.id, hit.passage.text) != hit.passage.text:
                raise IndexMismatchError(
                    f"two of the indexes that are searched call different passages '{hit.passage.id}': build "
                    "one index of both corpora, or give the ids of one a prefix."
                )
        return with_note(fuse(rankings)[:k], search_note(*rankings))


class PartsRetriever(SearchStage):
    """The parts of an index, in order, as the whole that they are: all are searched at once.

    Their scores are of one scale: those of vectors, from one training. Where they are equal the earlier
    passage comes first, as in a whole index. One part that fails fails the search: without it there would be
    less to find, unnoticed. ``fingerprint`` is the whole index's own.
    """

    def __init__(self, below: Sequence[SearchStage], fingerprint: str) -> None:
        super().__init__(*below)
        self.fingerprint = fingerprint

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first."""
        hits_by_part = await gather(each.search(query, k, hop) for each in self.below)
        # Sorting keeps the order of what is equal: part by part, each in its own order.
        sorted_hits = sorted((hit for hits in hits_by_part for hit in hits), key=lambda hit: -hit.score)
        return with_note(sorted_hits[:k], search_note(*hits_by_part))
