"""Vectors of fewer bits than float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from retrieval.dense.ready_vectors import ReadyVectors

REFINE = "refine"  # beside the index: a FAISS file of all vectors, of which only candidates are read
RANGE_ROWS = 100_000  # vectors from which the range of each dimension is taken


def write_codes(source: ReadyVectors, path: Path, kind: str) -> None:
    """Stream the vectors behind the header of an ``IndexScalarQuantizer``: FAISS writes from memory only.

    ``kind``: "fp16", 2 bytes for each number, or "sq8", a byte, for 256 steps of the dimension's range.
    """
    import faiss

    types = {"fp16": faiss.ScalarQuantizer.QT_fp16, "sq8": faiss.ScalarQuantizer.QT_8bit}
    index = faiss.IndexScalarQuantizer(source.dimension, types[kind], faiss.METRIC_INNER_PRODUCT)
    index.train(source.sample(RANGE_ROWS))
    header = bytearray(faiss.serialize_index(index).tobytes())
    # The count of rows stands at 8, that of bytes at the end. FAISS reads it back in the tests.
    header[8:16] = source.rows.to_bytes(8, "little")
    header[-8:] = (source.rows * index.code_size).to_bytes(8, "little")
    with path.open("wb") as stream:
        stream.write(header)
        for vectors in source:
            stream.write(index.sa_encode(np.ascontiguousarray(vectors)).tobytes())
