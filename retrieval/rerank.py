"""Re-order hits by a cross-encoder, which reads query and passage together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.batching import MicroBatcher
from core.errors import ConfigError, reason
from core.protocols import Retriever
from core.seeds import stable_hash
from core.types import Hit, Passage

_MAX_QUERIES = 64


class RerankedRetriever:
    """Fetch ``depth`` hits (more if more is asked for), score each with the cross-encoder, return the best k.

    Raises :class:`ConfigError` if the cross-encoder cannot be loaded.
    """

    def __init__(self, inner: Retriever, model: str, depth: int) -> None:
        from sentence_transformers import CrossEncoder

        try:
            self._model: Any = CrossEncoder(model)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the reranker '{model}' cannot be loaded: {reason(error)}") from None
        if self._model.num_labels != 1:
            raise ConfigError(
                f"the reranker '{model}' gives {self._model.num_labels} scores per passage, but one is "
                "needed."
            )
        self._inner = inner
        self._depth = depth
        self._batcher = MicroBatcher(self._score, max_batch=_MAX_QUERIES, name="rerank")
        self._fingerprint = stable_hash(f"rerank|{model}|{depth}|{inner.fingerprint}")

    @property
    def fingerprint(self) -> str:
        """Identify the index below, the cross-encoder's name and the depth."""
        return self._fingerprint

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits, best first; scores are the cross-encoder's."""
        hits = await self._inner.search(query, max(k, self._depth))
        if not hits:
            return ()
        scores = await self._batcher.submit((query, hits))
        ranked = (Hit(hit.passage, score) for hit, score in zip(hits, scores, strict=True))
        return sorted(ranked, key=lambda hit: -hit.score)[:k]

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._inner.passages(ids)

    async def close(self) -> None:
        """Free the cross-encoder and the index below."""
        self._batcher.close()
        await self._inner.close()

    def _score(self, items: Sequence[tuple[str, Sequence[Hit]]]) -> list[list[float]]:
        pairs = [(query, hit.passage.contents) for query, hits in items for hit in hits]
        scores = iter(self._model.predict(pairs, show_progress_bar=False).tolist())
        return [[next(scores) for _ in hits] for _, hits in items]
