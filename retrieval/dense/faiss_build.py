"""FAISS files of a corpus's vectors: flat, HNSW, IVF-PQ, a byte for each number."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import ConfigError, DataError
from corag.core.pace import pace
from corag.core.system.machine import count_threads
from retrieval.config import GRAPHS, IndexConfig
from retrieval.dense.build import INDEX
from retrieval.dense.compressed import RANGE_ROWS, REFINE, write_codes
from retrieval.dense.ready_vectors import ReadyVectors
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
    source: ReadyVectors, folder: Path, config: IndexConfig, report: Callable[[str], None] = lambda _: None
) -> str:
    """Write a FAISS index of vectors; row i is passage i.

    All but the graphs never hold all vectors in memory. Return how much an index that is not exact finds
    (:func:`retrieval.dense.recall.measure_recall`), "" of an exact one.
    """
    import faiss

    faiss.omp_set_num_threads(config.threads or count_threads())
    if config.faiss == "flat":
        _write_flat(source, folder / INDEX)
        return ""
    if config.faiss == "sq8":
        write_codes(source, folder / INDEX, "sq8")
    else:
        _build_in_memory(source, folder, config, report)
    if config.faiss == "ivfpq" and config.refine and config.refine != "none":
        write_codes(source, folder / REFINE, config.refine)
    return measure_recall(source, folder, config)


def _build_in_memory(
    source: ReadyVectors, folder: Path, config: IndexConfig, report: Callable[[str], None]
) -> None:
    index = _hnsw(source, config) if config.faiss in GRAPHS else _train_ivfpq(source, config)
    start = last_report = time.monotonic()
    for vectors in _blocks(source):
        index.add(vectors)
        if time.monotonic() - last_report >= _REPORT_EVERY_S:
            last_report = time.monotonic()
            speed = pace(index.ntotal, last_report - start, source.rows)
            report(f"{index.ntotal:,} of {source.rows:,} vectors in the index, {speed}")
    _write_index(index, folder)


def _blocks(source: ReadyVectors) -> Iterator[NDArray[np.float32]]:
    """Join vectors into blocks of at least ``_ADDED_ROWS``, but for the last."""
    block: list[NDArray[np.float32]] = []
    for vectors in source:
        block.append(np.asarray(vectors))
        if sum(map(len, block)) >= _ADDED_ROWS:
            yield np.concatenate(block)
            block = []
    if block:
        yield np.concatenate(block)


def _write_index(index: Any, folder: Path) -> None:
    """Write a FAISS index into a folder. Raises :class:`DataError` if the disk is full."""
    import faiss

    try:
        faiss.write_index(index, str(folder / INDEX))
    except RuntimeError as error:
        why = str(error).rpartition("failed: ")[2]  # before it stands where in FAISS
        raise DataError(
            f"cannot write '{folder / INDEX}': {why}. Free some space or choose another place."
        ) from None


def _write_flat(source: ReadyVectors, path: Path) -> None:
    """Stream the vectors behind the header of an ``IndexFlatIP``: FAISS itself writes from memory only."""
    import faiss

    # 45 bytes, the counts of rows and floats at 8 and 37. FAISS reads it back in the tests.
    header = bytearray(faiss.serialize_index(faiss.IndexFlatIP(source.dimension)).tobytes())
    header[8:16] = source.rows.to_bytes(8, "little")
    header[37:45] = (source.rows * source.dimension).to_bytes(8, "little")
    with path.open("wb") as stream:
        stream.write(header)
        for vectors in source:
            stream.write(np.asarray(vectors).tobytes())


def _hnsw(source: ReadyVectors, config: IndexConfig) -> Any:
    import faiss

    if config.faiss == "hnsw":
        index: Any = faiss.IndexHNSWFlat(source.dimension, config.hnsw_m, faiss.METRIC_INNER_PRODUCT)
    else:
        bits: Any = faiss.ScalarQuantizer.QT_8bit
        index = faiss.IndexHNSWSQ(source.dimension, bits, config.hnsw_m, faiss.METRIC_INNER_PRODUCT)
        index.train(source.sample(RANGE_ROWS))
    index.hnsw.efConstruction = config.hnsw_ef_construction
    return index


def _train_ivfpq(source: ReadyVectors, config: IndexConfig) -> Any:
    import faiss

    lists = count_ivf_lists(config, source.rows, source.dimension)
    coarse, inner_product = faiss.IndexFlatIP(source.dimension), faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFPQ(coarse, source.dimension, lists, config.pq_bytes, _PQ_BITS, inner_product)
    index.train(source.sample(_TRAINED_PER_LIST * max(lists, 1 << _PQ_BITS)))
    return index
