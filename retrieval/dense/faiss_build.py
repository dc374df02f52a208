"""FAISS files of a corpus's vectors: flat, HNSW, IVF-PQ, a byte for each number."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import ConfigError, DataError, IndexMismatchError
from corag.core.machine import count_threads
from corag.core.pace import pace
from retrieval.config import GRAPHS, IndexConfig
from retrieval.dense.build import INDEX, VectorSource
from retrieval.dense.compressed import RANGE_ROWS, REFINE, write_codes
from retrieval.dense.recall import measure_recall

_PQ_BITS = 8  # a byte per part of a vector
_VECTORS_PER_LIST = 39  # FAISS's own least number: with fewer it trains all the same, and warns
_TRAINED_PER_LIST = 64  # FAISS takes 256 at most; all that are sampled are in memory at once
_REPORT_EVERY_S = 5.0
# At each call FAISS makes a lock for every vector of the graph: of 36 million that took minutes of 4,096
# each. More would leave half an hour without a line of progress on few cores.
_ADDED_ROWS = 1 << 17


def count_ivf_lists(config: IndexConfig, rows: int, dimension: int) -> int:
    """Return the number of lists of an "ivfpq" index.

    Raises :class:`ConfigError` if such an index cannot be trained.
    """
    # Four times the square root is what FAISS's guidelines begin with.
    lists = config.ivf_lists or min(4 * math.isqrt(rows), rows // _VECTORS_PER_LIST)
    least = _VECTORS_PER_LIST * max(lists, 1 << _PQ_BITS)
    if rows < least:
        most = rows // _VECTORS_PER_LIST
        advice = f"set ivf_lists to {most:,} at most" if most >= 1 << _PQ_BITS else "use flat or hnsw"
        raise ConfigError(
            f"faiss: ivfpq with {lists:,} lists would need {least:,} passages to train on, but there are "
            f"{rows:,}: {advice}."
        )
    if dimension % config.pq_bytes:
        raise ConfigError(
            f"pq_bytes must divide the encoder's dimension, but got {config.pq_bytes} and {dimension}."
        )
    return lists


def build_faiss(
    shards: VectorSource, folder: Path, config: IndexConfig, report: Callable[[str], None] = lambda _: None
) -> str:
    """Write a FAISS index of the shards' vectors; row i is passage i.

    All but the graphs never hold all vectors in memory. Return how much an index that is not exact finds
    (:func:`retrieval.dense.recall.measure_recall`), "" of an exact one.
    """
    import faiss

    faiss.omp_set_num_threads(config.threads or count_threads())
    if config.faiss == "flat":
        _write_flat(shards, folder / INDEX)
        return ""
    if config.faiss == "sq8":
        write_codes(shards, folder / INDEX, "sq8")
    else:
        _build_in_memory(shards, folder, config, report)
    if config.train_only:
        return ""
    if config.faiss == "ivfpq" and config.refine and config.refine != "none":
        write_codes(shards, folder / REFINE, config.refine)
    return measure_recall(shards, folder, config)


def _build_in_memory(
    shards: VectorSource, folder: Path, config: IndexConfig, report: Callable[[str], None]
) -> None:
    index = _hnsw(shards, config) if config.faiss in GRAPHS else _train_ivfpq(shards, config)
    start = last_report = time.monotonic()
    for vectors in () if config.train_only else _blocks(shards):
        index.add(vectors)
        if time.monotonic() - last_report >= _REPORT_EVERY_S:
            last_report = time.monotonic()
            speed = pace(index.ntotal, last_report - start, shards.rows)
            report(f"{index.ntotal:,} of {shards.rows:,} vectors in the index, {speed}")
    write_index(index, folder)


def _blocks(shards: VectorSource) -> Iterator[NDArray[np.float32]]:
    """Join vectors into blocks of at least ``_ADDED_ROWS``, but for the last."""
    block: list[NDArray[np.float32]] = []
    for vectors in shards:
        block.append(np.asarray(vectors))
        if sum(map(len, block)) >= _ADDED_ROWS:
            yield np.concatenate(block)
            block = []
    if block:
        yield np.concatenate(block)


def write_index(index: Any, folder: Path) -> None:
    """Write a FAISS index into a folder. Raises :class:`DataError` if the disk is full."""
    import faiss

    try:
        faiss.write_index(index, str(folder / INDEX))
    except RuntimeError as error:
        why = str(error).rpartition("failed: ")[2]  # before it stands where in FAISS
        raise DataError(
            f"cannot write '{folder / INDEX}': {why}. Free some space or choose another place."
        ) from None


def _write_flat(shards: VectorSource, path: Path) -> None:
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


def _hnsw(shards: VectorSource, config: IndexConfig) -> Any:
    import faiss

    if config.faiss == "hnsw":
        index: Any = faiss.IndexHNSWFlat(shards.dimension, config.hnsw_m, faiss.METRIC_INNER_PRODUCT)
    else:
        bits: Any = faiss.ScalarQuantizer.QT_8bit
        index = faiss.IndexHNSWSQ(shards.dimension, bits, config.hnsw_m, faiss.METRIC_INNER_PRODUCT)
        index.train(shards.sample(RANGE_ROWS))
    index.hnsw.efConstruction = config.hnsw_ef_construction
    return index


def _train_ivfpq(shards: VectorSource, config: IndexConfig) -> Any:
    import faiss

    if config.trained:
        return _read_training(Path(config.trained), shards.dimension)
    # To be trained only, they are a sample that was taken for so many lists.
    lists = config.ivf_lists
    if not config.train_only:
        lists = count_ivf_lists(config, shards.rows, shards.dimension)
    coarse, inner_product = faiss.IndexFlatIP(shards.dimension), faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFPQ(coarse, shards.dimension, lists, config.pq_bytes, _PQ_BITS, inner_product)
    index.train(shards.sample(training_rows(lists)))
    return index


def training_rows(lists: int) -> int:
    """Return how many vectors an "ivfpq" index of so many lists is trained on."""
    return _TRAINED_PER_LIST * max(lists, 1 << _PQ_BITS)


def _read_training(folder: Path, dimension: int) -> Any:
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
