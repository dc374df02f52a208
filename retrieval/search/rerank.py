"""The hits in a re-ranker's order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from corag.core.batching import MicroBatcher
from corag.core.errors import SearchFailedError
from corag.core.protocols import search_note
from corag.core.seeds import stable_hash
from corag.core.types import Hit
from corag.core.web.servers import is_address
from retrieval.dense.placement import ANYWHERE, Placement
from retrieval.http.models import ServedReranker
from retrieval.search.rerankers import CrossEncoderReranker, Reranker, ScoresOrError
from retrieval.search.stage import SearchStage, with_note

_MAX_RERANKED_QUERIES = 64  # each brings as many pairs as it has hits, so a batch is thousands of pairs


def open_reranker(name: str, placement: Placement) -> Reranker:
    """Load a cross-encoder (a Hugging Face name or a folder), or reach that of a server (http://host:port).

    Raises :class:`ConfigError` if it cannot be loaded or gives several scores per pair,
    :class:`corag.core.errors.BackendError` if there is no such server.
    """
    return ServedReranker(name, placement) if is_address(name) else CrossEncoderReranker(name, placement)


class RerankedRetriever(SearchStage):
    """Fetch ``depth`` hits (more if more is asked for), score each with a re-ranker, return the best k.

    ``model``: a Hugging Face name, a folder or a server's address. Raises as :func:`open_reranker` does.
    """

    def __init__(self, below: SearchStage, model: str, depth: int, placement: Placement = ANYWHERE) -> None:
        super().__init__(below)
        self._reranker = open_reranker(model, placement)
        self._depth = depth
        self._batcher = MicroBatcher(self._score, max_batch=_MAX_RERANKED_QUERIES, name="rerank")
        self.fingerprint = stable_hash(f"rerank|{self._reranker.fingerprint}|{depth}|{below.fingerprint}")

    async def search(self, query: str, k: int, hop: bool = False) -> Sequence[Hit]:
        """Return up to k hits, best first; scores are the re-ranker's."""
        hits = await self.below[0].search(query, max(k, self._depth), hop)
        if not hits:
            return ()
        scores, note = await self._batcher.submit((query, hits))
        if isinstance(scores, SearchFailedError):
            raise scores
        scored_hits = (Hit(hit.passage, score) for hit, score in zip(hits, scores, strict=True))
        # What the cross-encoder has no number for comes last.
        sorted_hits = sorted(scored_hits, key=lambda hit: (math.isnan(hit.score), -hit.score))
        return with_note(sorted_hits[:k], search_note(hits), note)

    async def close(self) -> None:
        """Free the re-ranker and the stage below."""
        self._batcher.close()
        self._reranker.close()
        await super().close()

    def _score(self, items: Sequence[tuple[str, Sequence[Hit]]]) -> Sequence[tuple[ScoresOrError, str]]:
        pairs = [(query, [hit.passage.contents for hit in hits]) for query, hits in items]
        # Notes are made here too: a tokenizer is changed by each use, so it is one thread's.
        return [
            (scores, self._reranker.note(query))
            for (query, _), scores in zip(items, self._reranker.score(pairs), strict=True)
        ]
