"""Nearest vectors by inner product: FAISS (flat, HNSW, IVF-PQ) and Lucene's own flat and HNSW vectors."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from core.errors import BackendError, ConfigError, IndexMismatchError
from retrieval.config import IndexConfig
from retrieval.dense.encoding import Shards
from retrieval.lucene.java import java_class, java_error, java_path, to_java_list, to_json

INDEX, DOCID = "index", "docid"  # Pyserini's names for the FAISS file and for the list of ids, one per line
_PQ_BITS = 8
_VECTORS_PER_CLUSTER = 39  # fewer train a cluster badly, FAISS warns
Matches = list[list[tuple[str, float]]]


class VectorIndex(Protocol):
    """Finds the nearest passages of query vectors."""

    def search(self, vectors: NDArray[np.float32], k: int) -> Matches:
        """Return, per query of [queries, dimension], up to k (passage id, score), best first."""
        ...

    def close(self) -> None:
        """Free the index. Safe to call twice."""
        ...


def ivf_lists(config: IndexConfig, rows: int, dimension: int) -> int:
    """Return the number of clusters of an "ivfpq" index.

    Raises :class:`ConfigError` if such an index cannot be trained.
    """
    lists = config.ivf_lists or min(4 * math.isqrt(rows), rows // _VECTORS_PER_CLUSTER)
    needed = _VECTORS_PER_CLUSTER * max(lists, 1 << _PQ_BITS)
    if rows < needed:
        raise ConfigError(
            f"faiss: ivfpq would need {needed:,} passages to train on, but there are {rows:,}: use flat or "
            "hnsw."
        )
    if dimension % config.pq_bytes:
        raise ConfigError(
            f"pq_bytes must divide the encoder's dimension, but got {config.pq_bytes} and {dimension}."
        )
    return lists


def build_faiss(shards: Shards, folder: Path, config: IndexConfig) -> None:
    """Write a FAISS index of the shards' vectors; row i is passage i.

    Flat and IVF-PQ never hold all vectors in memory.
    """
    import faiss

    faiss.omp_set_num_threads(config.threads or os.cpu_count() or 1)
    if config.faiss == "flat":
        _write_flat(shards, folder / INDEX)
        return
    index = _hnsw(shards, config) if config.faiss == "hnsw" else _trained_ivfpq(shards, config)
    for vectors in shards:
        index.add(np.asarray(vectors))
    faiss.write_index(index, str(folder / INDEX))


def _write_flat(shards: Shards, path: Path) -> None:
    """Stream the vectors behind the header of an ``IndexFlatIP``: 45 bytes, with the counts of rows and
    floats at 8 and 37.
    """
    import faiss

    header = bytearray(faiss.serialize_index(faiss.IndexFlatIP(shards.dimension)).tobytes())
    header[8:16] = shards.rows.to_bytes(8, "little")
    header[37:45] = (shards.rows * shards.dimension).to_bytes(8, "little")
    with path.open("wb") as stream:
        stream.write(header)
        for vectors in shards:
            stream.write(np.asarray(vectors).tobytes())


def _hnsw(shards: Shards, config: IndexConfig) -> Any:
    import faiss

    index = faiss.IndexHNSWFlat(shards.dimension, config.hnsw_m, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = config.hnsw_ef_construction
    return index


def _trained_ivfpq(shards: Shards, config: IndexConfig) -> Any:
    import faiss

    lists = ivf_lists(config, shards.rows, shards.dimension)
    index = faiss.IndexIVFPQ(
        faiss.IndexFlatIP(shards.dimension),
        shards.dimension,
        lists,
        config.pq_bytes,
        _PQ_BITS,
        faiss.METRIC_INNER_PRODUCT,
    )
    index.train(shards.sample(64 * max(lists, 1 << _PQ_BITS)))
    return index


class FaissIndex:
    """A FAISS index read through a memory map; ``id_of`` names the passage of a row.

    Raises :class:`IndexMismatchError` if FAISS cannot read the file.
    """

    def __init__(
        self, path: Path, id_of: Callable[[int], str], *, ef_search: int, nprobe: int, threads: int = 0
    ) -> None:
        import faiss

        self._id_of = id_of
        try:
            self._index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise IndexMismatchError(
                f"FAISS cannot read the index '{path}': {str(error).splitlines()[-1]}"
            ) from None
        self._threads = threads or os.cpu_count() or 1
        if isinstance(self._index, faiss.IndexHNSW):
            self._index.hnsw.efSearch = ef_search
        if isinstance(self._index, faiss.IndexIVF):
            self._index.nprobe = min(nprobe, self._index.nlist)

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self._index.d)

    @property
    def rows(self) -> int:
        """Number of vectors."""
        return int(self._index.ntotal)

    def search(self, vectors: NDArray[np.float32], k: int) -> Matches:
        """Return the nearest passages of each query.

        FAISS pads with row -1 where it finds fewer than k, which is left out.
        """
        import faiss

        faiss.omp_set_num_threads(self._threads)
        scores, rows = self._index.search(vectors, min(k, self.rows))
        return [
            [
                (self._id_of(row), score)
                for row, score in zip(query_rows, query_scores, strict=True)
                if row >= 0
            ]
            for query_rows, query_scores in zip(rows.tolist(), scores.tolist(), strict=True)
        ]

    def close(self) -> None:
        """Let go of the memory map."""
        self._index = None


def build_lucene_vectors(shards: Shards, ids: Iterable[str], folder: Path, config: IndexConfig) -> None:
    """Index the vectors with Anserini: exact for "lucene_flat", an HNSW graph for "lucene_hnsw".

    They pass through a JSONL file.
    """
    handover = folder / "handover"
    handover.mkdir(exist_ok=True)
    with (handover / "vectors.jsonl").open("wb") as stream:
        rows = (row for vectors in shards for row in vectors)
        for identifier, row in zip(ids, rows, strict=True):
            stream.write(orjson.dumps({"docid": identifier, "vector": row.tolist()}) + b"\n")
    indexer = f"io.anserini.index.Index{'Flat' if config.kind == 'lucene_flat' else 'Hnsw'}DenseVectors"
    arguments = java_class(f"{indexer}$Args")()
    arguments.collectionClass, arguments.input, arguments.index = (
        "JsonDenseVectorCollection",
        java_path(handover),
        java_path(folder),
    )
    arguments.threads, arguments.optimize, arguments.quiet = config.threads or os.cpu_count() or 1, True, True
    if config.kind == "lucene_hnsw":
        arguments.M, arguments.efC = config.hnsw_m, config.hnsw_ef_construction
    java_class(indexer)(arguments).run()
    shutil.rmtree(handover)
    (folder / "write.lock").unlink(missing_ok=True)


class LuceneVectorIndex:
    """Lucene's vectors through Anserini. Scores are Lucene's: (1 + cosine) / 2."""

    def __init__(self, folder: Path, kind: str, *, ef_search: int, threads: int = 0) -> None:
        self._threads, self._folder = threads or os.cpu_count() or 1, folder
        searcher = f"io.anserini.search.{'Flat' if kind == 'lucene_flat' else 'Hnsw'}DenseSearcher"
        arguments = java_class(f"{searcher}$Args")()
        arguments.index = java_path(folder)
        if kind == "lucene_hnsw":
            arguments.efSearch = ef_search
        self._searcher: Any = java_class(searcher)(arguments)

    def search(self, vectors: NDArray[np.float32], k: int) -> Matches:
        """Return the nearest passages' ids."""
        queries = to_java_list(orjson.dumps(row.tolist()).decode() for row in vectors)
        numbers = to_java_list(str(number) for number in range(len(vectors)))
        try:
            found = orjson.loads(to_json(self._searcher.batch_search(queries, numbers, k, self._threads)))
        except java_error() as error:
            raise BackendError(
                f"the Lucene index '{self._folder}' can no longer be searched: {error}"
            ) from None
        return [
            [(hit["docid"], hit["score"]) for hit in found[str(number)]] for number in range(len(vectors))
        ]

    def close(self) -> None:
        """Free the index."""
        if self._searcher is not None:
            self._searcher.close()
            self._searcher = None
