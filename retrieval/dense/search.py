"""Searching an index of vectors: encode the queries of a batch, find the nearest vectors, fetch the passages.

The texts are the index's own or another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import (
    ConfigError,
    DataError,
    IndexMismatchError,
    RequestRefusedError,
    SearchFailedError,
)
from corag.core.system.machine import count_threads
from corag.core.types import Hit, Passage
from retrieval.dense.compressed import REFINE
from retrieval.dense.encoder import TextEncoder
from retrieval.dense.prompts import AUTO
from retrieval.dense.ready_vectors import keeps_vectors
from retrieval.dense.torch_search import TorchVectors
from retrieval.dense.vector_check import check_compressed, check_vectors, sample_rows
from retrieval.search.stage import HitsOrError, PassageSource, with_note

Matches = list[list[tuple[str, float]]]

_SPARE = 8  # further rows that FAISS is asked for, for those whose last bits decide
_ROUNDING = 1e-5  # more than float32 sums of some hundred products are off
# FAISS multiplies matrices where queries times dimension reach this; its own threshold, once 20, is 128,000
# now, which 334 queries of 384 dimensions reach and no smaller batch. Two cores answer 250 to 570 queries a
# second among 62,158 x 384 without, whatever the batch; with matrices 250 one by one, 385 of 2, 731 of 4 and
# 1,052 of 8 at once. Threads wait for each other after every block of vectors, 1,024 by default.
_BLAS_WORK, _BLAS_ROWS = 1_024, 1 << 14
_DEEP = 512  # candidates or lists of a check; FAISS's 16 missed five of twelve rows of a graph of one thread
_CANDIDATES = 10  # for a hit, of a compressed index whose vectors are beside it: 20 find no more
_TOKENS_AROUND = 4  # tokens that a tokenizer puts before and behind a text, at most
_BLOCK_BYTES = 64 << 20  # most that a step of an exact search takes beside its results


class DenseSearcher:
    """A :class:`retrieval.search.stage.BatchSearcher`. ``query_prefix`` goes before every query."""

    def __init__(
        self, encoder: TextEncoder, vectors: FaissIndex, texts: PassageSource, query_prefix: str = ""
    ) -> None:
        self._encoder = encoder
        self._vectors = vectors
        self._texts = texts
        self._query_prefix = query_prefix
        self._borrows = False

    @property
    def encoder(self) -> TextEncoder:
        """What queries are encoded with."""
        return self._encoder

    @property
    def query_prefix(self) -> str:
        """What goes before every query."""
        return self._query_prefix

    def with_query_encoder(self, encoder: TextEncoder) -> DenseSearcher:
        """Return a search of the same vectors whose queries another encoder makes; this one closes them.

        Its queries have the prompt that the encoder brings, or else those of this search.
        """
        prompt = encoder.resolve_prompt(AUTO, "query") or self._query_prefix
        other = DenseSearcher(encoder, self._vectors, self._texts, prompt)
        other._borrows = True
        return other

    def search(self, queries: Sequence[str], k: int) -> Sequence[HitsOrError]:
        """Return for each query the k passages of highest cosine, best first.

        Raises :class:`DataError` if one has no text.
        """
        try:
            vectors = self._encoder.encode(queries, prompt=self._query_prefix, kind="query")
        except RequestRefusedError as refusal:  # a server's, of one query
            if len(queries) == 1:
                return [SearchFailedError(str(refusal))]
            return [outcome for query in queries for outcome in self.search([query], k)]
        matches = self._vectors.search(vectors, k)
        passages = self.passages(
            list(dict.fromkeys(name for query_matches in matches for name, _ in query_matches))
        )
        try:
            return [
                with_note(
                    tuple(Hit(passages[name], score) for name, score in query_matches), self._note(query)
                )
                for query, query_matches in zip(queries, matches, strict=True)
            ]
        except KeyError as missing:
            raise DataError(
                f"the vectors name a passage {missing} whose text is not there: the texts belong to another "
                "corpus. Set passages_from to the index of this very corpus."
            ) from None

    def _note(self, query: str) -> str:
        """Return how much of a query the encoder reads, if not all of it; else ""."""
        text, limit = self._query_prefix + query, self._encoder.max_tokens
        # A token is a byte or more, but for the few around a text: most queries need not be counted.
        if (
            len(text.encode()) + _TOKENS_AROUND <= limit
            or (tokens := self._encoder.count_tokens([text])[0]) <= limit
        ):
            return ""
        return f"the encoder read the first {limit:,} of the query's {tokens:,} tokens"

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        return self._texts.passages(ids)

    def close(self) -> None:
        """Free vectors and texts, and the encoder unless others use it. Safe to call twice."""
        vars(self).pop("_encoder", None)  # a server's ends its connections with its last user
        if self._borrows:
            return
        self._vectors.close()
        self._texts.close()


class FaissIndex:
    """A FAISS index read through a memory map; ``read_id`` names the passage of a row.

    ``devices``: of torch ("cpu", "cuda:1"), which looks through flat vectors in place of FAISS and finds the
    same; none for FAISS itself.

    Raises :class:`IndexMismatchError` if FAISS cannot read the file, :class:`ConfigError` if devices are to
    search vectors that are not flat.
    """

    def __init__(
        self,
        path: Path,
        read_id: Callable[[int], str],
        *,
        ef_search: int,
        nprobe: int,
        threads: int = 0,
        devices: Sequence[str] = (),
    ) -> None:
        import faiss

        self._read_id, self._path = read_id, path
        self._index = _map_index(path)
        self._threads = threads or count_threads()
        if isinstance(self._index, faiss.IndexHNSW):
            self._index.hnsw.efSearch = ef_search
        if isinstance(self._index, faiss.IndexIVF):
            self._index.nprobe = min(nprobe, self._index.nlist)
        refine = path.with_name(REFINE)
        self._refine: Any = None
        if isinstance(self._index, faiss.IndexIVF) and refine.is_file():
            self._refine = faiss.read_index(str(refine), faiss.IO_FLAG_MMAP_IFC)
        self._torch: TorchVectors | None = None
        if devices:
            if not isinstance(self._index, faiss.IndexFlat):
                raise ConfigError(
                    f"'{path.parent}' is no exact index, and search_device is for nothing else: leave it "
                    "out, or build the index with faiss=flat."
                )
            self._torch = TorchVectors(_flat_vectors(path, self.rows, self.dimension), devices, threads)
        faiss.cvar.distance_compute_blas_threshold = _BLAS_WORK
        faiss.cvar.distance_compute_blas_database_bs = _BLAS_ROWS

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self._index.d)

    @property
    def rows(self) -> int:
        """Number of vectors."""
        return int(self._index.ntotal)

    def check(
        self,
        what: str,
        passages: Sequence[Passage],
        encoder: TextEncoder,
        prefix: str,
        advice: str = "",
    ) -> None:
        """Raise :class:`IndexMismatchError` unless the vectors of passages are those that an encoder makes.

        ``passages``: those of ``sample_rows``. ``what``, ``advice``: begin and end the sentence. ``prefix``:
        what stood before every passage.
        """
        if keeps_vectors(self._index):
            stored = np.stack([self._index.reconstruct(row) for row in sample_rows(self.rows)])
            check_vectors(what, passages, stored, encoder, prefix, advice)
        else:
            # Another of the same file: how deep it looks is not how deep searches shall.
            deep = FaissIndex(self._path, self._read_id, ef_search=_DEEP, nprobe=_DEEP)
            check_compressed(what, passages, deep._index, encoder, prefix, advice)

    def search(self, vectors: NDArray[np.float32], k: int) -> Matches:
        """Return the nearest passages of each query."""
        import faiss

        faiss.omp_set_num_threads(self._threads)  # it belongs to the thread, not to the index
        if isinstance(self._index, faiss.IndexFlat):
            scores, rows = self._exact(vectors, min(k, self.rows))
        elif self._refine is not None:
            scores, rows = self._search_and_refine(vectors, min(k, self.rows))
        else:
            scores, rows = _sort_by_score(*self._index.search(vectors, min(k, self.rows)))
        query_rows = (zip(*query, strict=True) for query in zip(rows.tolist(), scores.tolist(), strict=True))
        # Where FAISS finds fewer than k it pads with row -1.
        return [[(self._read_id(row), score) for row, score in pairs if row >= 0] for pairs in query_rows]

    def _search_and_refine(self, vectors: NDArray[np.float32], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (scores, rows), [queries, k], of the best candidates, scored by the vectors themselves."""
        _, rows = self._index.search(vectors, min(_CANDIDATES * k, self.rows))
        scores = np.where(rows >= 0, self._scores(vectors, np.maximum(rows, 0)), -np.inf)
        scores, rows = _sort_by_score(scores, rows)
        return scores[:, :k], rows[:, :k]

    def _exact(self, vectors: NDArray[np.float32], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (scores, rows), [queries, k], that do not depend on what else is searched, and for what.

        FAISS multiplies matrices: the last bits of a score differ with the number of queries and of rows, so
        equal passages may not score alike, nor parts of an index as the whole.
        """
        scores = np.empty((len(vectors), k), np.float32)
        rows = np.empty((len(vectors), k), np.int64)
        # bfloat16 is less sure of an order than float32: the first look is twice as deep.
        open_queries, depth = np.arange(len(vectors)), k if self._torch is None else 2 * k
        while len(open_queries):
            depth = min(2 * depth + _SPARE, self.rows)
            still_open = []
            for some in _blocks(open_queries, 12 * depth):  # bytes of a row's number and its score
                rough, near, off = self._rough(vectors[some], depth)
                # Whoever may belong among the first k has to be there.
                is_decided = (rough[:, k - 1] - rough[:, -1] > off) | (depth == self.rows)
                decided_queries, near = some[is_decided], near[is_decided]
                best, places = _sort_by_score(self._scores(vectors[decided_queries], near), near)
                scores[decided_queries], rows[decided_queries] = best[:, :k], places[:, :k]
                still_open.append(some[~is_decided])
            open_queries = np.concatenate(still_open)
        return scores, rows

    def _rough(self, vectors: NDArray[np.float32], depth: int) -> tuple[NDArray[Any], NDArray[Any], Any]:
        """Return (scores, rows) of the nearest, and by how much two scores may be apart in a wrong order."""
        if self._torch is None:
            return (*self._index.search(vectors, depth), _ROUNDING)
        scores, rows = self._torch.search(vectors, depth)
        return scores, rows, self._torch.tolerance(vectors, scores)

    def _scores(self, vectors: NDArray[np.float32], rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return each query's products with its rows, [queries, depth], summed in float64."""
        source = self._index if self._refine is None else self._refine
        scores = np.empty(rows.size, np.float32)
        # Of each pair there are two vectors in float32 and their product in float64.
        for pairs in _blocks(np.arange(rows.size), 16 * self.dimension):
            row_vectors = source.reconstruct_batch(rows.reshape(-1)[pairs])
            query_vectors = vectors[pairs // rows.shape[1]]
            scores[pairs] = np.multiply(row_vectors, query_vectors, dtype=np.float64).sum(-1)
        return scores.reshape(rows.shape)

    def close(self) -> None:
        """Let go of the memory map."""
        self._index = self._refine = self._torch = None


def _map_index(path: Path) -> Any:
    import faiss

    try:
        # A memory map for every kind of index: opening is immediate, and processes share the pages.
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise IndexMismatchError(
            f"FAISS cannot read the index '{path}': {str(error).splitlines()[-1]}"
        ) from None


def _flat_vectors(path: Path, rows: int, dimension: int) -> NDArray[np.float32]:
    """Map the vectors of a flat FAISS file, [rows, dimension]: they are its last bytes."""
    offset = path.stat().st_size - 4 * rows * dimension
    return np.memmap(path, np.float32, "r", offset, (rows, dimension))


def _blocks(numbers: NDArray[Any], bytes_each: int) -> Iterator[NDArray[Any]]:
    """Cut numbers into blocks that take no more than ``_BLOCK_BYTES``, of one number at least."""
    size = max(1, _BLOCK_BYTES // bytes_each)
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _sort_by_score(scores: NDArray[Any], rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sort by score; of equal ones the earlier passage comes first, as among parts: FAISS has no order."""
    order = np.lexsort((rows, -scores), axis=-1)
    return np.take_along_axis(scores, order, -1), np.take_along_axis(rows, order, -1)
