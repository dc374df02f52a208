"""Dense search: encode the queries of a batch, find the nearest vectors, fetch the passages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from core.errors import DataError
from core.types import Hit, Passage
from retrieval.batched import Outcome
from retrieval.dense.encoders import Encoder
from retrieval.dense.vectors import VectorIndex


class PassageSource(Protocol):
    """Where the texts of a dense index come from: its own store, or the Lucene index beside a FAISS folder of
    Pyserini's.
    """

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        ...

    def close(self) -> None:
        """Free the source. Safe to call twice."""
        ...


class DenseSearcher:
    """A :class:`retrieval.batched.BatchSearcher` over vectors. ``query_prefix`` is put before every query."""

    def __init__(
        self, encoder: Encoder, vectors: VectorIndex, texts: PassageSource, query_prefix: str = ""
    ) -> None:
        self._encoder = encoder
        self._vectors = vectors
        self._texts = texts
        self._query_prefix = query_prefix

    def search(self, queries: Sequence[str], k: int) -> Sequence[Outcome]:
        """Return for each query the k passages of highest cosine, best first.

        Raises :class:`DataError` if one has no text.
        """
        matches = self._vectors.search(
            self._encoder.encode([self._query_prefix + query for query in queries]), k
        )
        passages = self.passages(
            list(dict.fromkeys(identifier for found in matches for identifier, _ in found))
        )
        try:
            return [
                tuple(Hit(passages[identifier], score) for identifier, score in found) for found in matches
            ]
        except KeyError as missing:
            raise DataError(
                f"the vectors name a passage {missing} whose text is not there: the texts belong to another "
                "corpus. Set passages_from to the index of this very corpus."
            ) from None

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        return self._texts.passages(ids)

    def close(self) -> None:
        """Free vectors and texts. Safe to call twice."""
        self._vectors.close()
        self._texts.close()
