"""Building an index of vectors: encode the corpus in shards, then FAISS (flat, HNSW, IVF-PQ) or Lucene.

:func:`retrieval.build.build_index` calls it for every kind of index but BM25; :mod:`retrieval.dense.search`
reads what it writes.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from core.errors import ConfigError, DataError, IndexMismatchError
from core.files import replacing
from core.types import Passage
from retrieval.config import IndexConfig
from retrieval.dense.encoder import Encoder
from retrieval.lucene.java import java_class, java_path, require_passages, writing_lucene
from retrieval.store import PassageStore

INDEX, DOCID = "index", "docid"  # Pyserini's names for the FAISS file and for the list of ids, one per line
_PQ_BITS = 8  # a byte per part of a vector
_VECTORS_PER_LIST = 39  # FAISS's own least number: with fewer it trains all the same, and warns
_TRAINED_PER_LIST = 64  # FAISS takes 256 at most; all that are sampled are in memory at once


@dataclass(frozen=True)
class Shards:
    """The vectors of a corpus: files of float32 [rows, dimension], in order.

    ``cut``: passages longer than the encoder's limit. ``found``: rows that an interrupted build had left.
    """

    files: tuple[Path, ...]
    rows: int
    dimension: int
    cut: int
    found: int = 0

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return (np.load(file, mmap_mode="r") for file in self.files)

    def sample(self, count: int) -> NDArray[np.float32]:
        """Return about ``count`` vectors spread evenly over the corpus."""
        step = max(1, self.rows // count)
        return np.concatenate([np.asarray(vectors[::step]) for vectors in self])


class KnownVectors:
    """The vectors of an earlier index, by the text that was encoded: what is still there keeps its vector.

    The caller vouches that encoder and prefix are the same. ``folder``: a FAISS index that keeps its vectors
    as they were, so flat or HNSW. ``taken`` counts those that were of use.
    """

    def __init__(self, folder: Path, store: PassageStore) -> None:
        import faiss

        self._index: Any = faiss.read_index(str(folder / INDEX), faiss.IO_FLAG_MMAP_IFC)
        self._rows = {
            _text_key(passage.contents): row for row, passage in enumerate(store.rows(0, len(store)))
        }
        self.taken = 0

    @staticmethod
    def are_in(folder: Path, config: IndexConfig) -> bool:
        """Whether a folder has vectors that can be taken over."""
        return config.kind == "dense" and config.faiss != "ivfpq" and (folder / INDEX).is_file()

    def encode(
        self, passages: Sequence[Passage], encode_new: Callable[[Sequence[Passage]], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return the vectors of passages: the known ones, and those of the others by ``encode_new``."""
        rows = [self._rows.get(_text_key(passage.contents), -1) for passage in passages]
        vectors = np.empty((len(rows), self._index.d), np.float32)
        old = [place for place, row in enumerate(rows) if row >= 0]
        new = [place for place, row in enumerate(rows) if row < 0]
        self.taken += len(old)
        if old:
            vectors[old] = self._index.reconstruct_batch(np.array([rows[place] for place in old], np.int64))
        if new:
            vectors[new] = encode_new([passages[place] for place in new])
        return vectors


def _text_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def encode_corpus(
    store: PassageStore,
    encoder: Encoder,
    folder: Path,
    *,
    prefix: str,
    shard_size: int,
    batch_size: int,
    report: Callable[[str], None],
    known: KnownVectors | None = None,
) -> Shards:
    """Encode every passage's title, newline, text into ``folder``, keeping the shards that are there already.

    The caller vouches that these are of the same corpus, encoder, prefix and shard size: an interruption
    loses at most the shard in work. What is ``known`` under the same prefix is not encoded. Raises
    :class:`core.errors.DataError` if the disk is full.
    """
    cut, found, encoded, started = 0, 0, 0, time.monotonic()

    def encode(passages: Sequence[Passage]) -> NDArray[np.float32]:
        nonlocal encoded
        encoded += len(passages)
        return encoder.encode([prefix + passage.contents for passage in passages], batch_size)

    folder.mkdir(exist_ok=True)
    files: list[Path] = []
    for start in range(0, len(store), shard_size):
        file = folder / f"{start:012d}.npy"  # by its first row, so that names sort as rows do
        files.append(file)
        passages = list(store.rows(start, start + shard_size))
        # Of finished shards too: the manifest's note is about the whole corpus.
        cut += encoder.count_cut([prefix + passage.contents for passage in passages])
        if file.is_file():
            found += len(passages)
            continue
        vectors = known.encode(passages, encode) if known else encode(passages)
        with replacing(file) as temporary, temporary.open("wb") as stream:
            np.save(stream, vectors)
        if not encoded:
            continue
        done, speed = start + len(passages), encoded / (time.monotonic() - started)
        report(
            f"{done:,} of {len(store):,} passages encoded, {speed:,.0f}/s, "
            f"{(len(store) - done) / speed / 60:,.0f} min left"
        )
    return Shards(tuple(files), len(store), encoder.dimension, cut, found)


def checked_ivf_lists(config: IndexConfig, rows: int, dimension: int) -> int:
    """Return the number of lists of an "ivfpq" index.

    Raises :class:`ConfigError` if such an index cannot be trained.
    """
    # Four times the square root is what FAISS's guidelines begin with.
    lists = config.ivf_lists or min(4 * math.isqrt(rows), rows // _VECTORS_PER_LIST)
    needed = _VECTORS_PER_LIST * max(lists, 1 << _PQ_BITS)
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
    for vectors in () if config.train_only else shards:
        index.add(np.asarray(vectors))
    try:
        faiss.write_index(index, str(folder / INDEX))
    except RuntimeError as error:
        why = str(error).rpartition("failed: ")[2]  # before it stands where in FAISS
        raise DataError(
            f"cannot write '{folder / INDEX}': {why}. Free some space or choose another place."
        ) from None


def _write_flat(shards: Shards, path: Path) -> None:
    """Stream the vectors behind the header of an ``IndexFlatIP``: FAISS itself writes from memory only."""
    import faiss

    # 45 bytes, the counts of rows and floats at 8 and 37. FAISS reads it back in the tests.
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

    if config.trained:
        return _read_trained(Path(config.trained), shards.dimension)
    # To be trained only, they are a sample that was taken for so many lists.
    lists = config.ivf_lists
    if not config.train_only:
        lists = checked_ivf_lists(config, shards.rows, shards.dimension)
    coarse, inner_product = faiss.IndexFlatIP(shards.dimension), faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFPQ(coarse, shards.dimension, lists, config.pq_bytes, _PQ_BITS, inner_product)
    index.train(shards.sample(training_rows(lists)))
    return index


def training_rows(lists: int) -> int:
    """Return how many vectors an "ivfpq" index of so many lists is trained on."""
    return _TRAINED_PER_LIST * max(lists, 1 << _PQ_BITS)


def _read_trained(folder: Path, dimension: int) -> Any:
    """Read an empty index that was trained before. Raises :class:`IndexMismatchError` if it is none."""
    import faiss

    try:
        index = faiss.read_index(str(folder / INDEX))
    except RuntimeError:
        index = None
    if index is None or not isinstance(index, faiss.IndexIVFPQ) or index.ntotal or index.d != dimension:
        raise IndexMismatchError(
            f"'{folder}' is no training for vectors of {dimension} dimensions: make it with corag index "
            "CORPUS --kind dense --faiss ivfpq --train_only true --out FOLDER, and the same encoder."
        )
    return index


def build_lucene_vectors(shards: Shards, ids: Iterable[str], folder: Path, config: IndexConfig) -> None:
    """Index the vectors with Anserini: exact for "lucene_flat", an HNSW graph for "lucene_hnsw".

    They pass through a JSONL file: Anserini's indexers read nothing else.
    """
    handover = folder / "handover"
    handover.mkdir(exist_ok=True)
    with (handover / "vectors.jsonl").open("wb") as stream:
        rows = (row for vectors in shards for row in vectors)
        for identifier, row in zip(ids, rows, strict=True):
            stream.write(orjson.dumps({"docid": identifier, "vector": row.tolist()}) + b"\n")
    indexer = f"io.anserini.index.Index{'Flat' if config.kind == 'lucene_flat' else 'Hnsw'}DenseVectors"
    arguments = java_class(f"{indexer}$Args")()
    arguments.collectionClass = "JsonDenseVectorCollection"
    arguments.input, arguments.index = java_path(handover), java_path(folder)
    arguments.threads = config.threads or os.cpu_count() or 1
    arguments.optimize = arguments.quiet = True  # one segment, so one graph to search
    if config.kind == "lucene_hnsw":
        arguments.M, arguments.efC = config.hnsw_m, config.hnsw_ef_construction
    with writing_lucene(folder):
        java_class(indexer)(arguments).run()
    require_passages(folder, shards.rows)
    shutil.rmtree(handover)
    (folder / "write.lock").unlink(missing_ok=True)
