"""Encode a corpus shard by shard; an interruption loses at most the shard in work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.files import replacing
from retrieval.dense.encoders import Encoder
from retrieval.store import PassageStore


@dataclass(frozen=True)
class Shards:
    """The vectors of a corpus: files of float32 [rows, dimension], in order.

    ``cut``: passages longer than the encoder's limit.
    """

    files: tuple[Path, ...]
    rows: int
    dimension: int
    cut: int

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return (np.load(file, mmap_mode="r") for file in self.files)

    def sample(self, count: int) -> NDArray[np.float32]:
        """Return about ``count`` vectors spread evenly over the corpus."""
        step = max(1, self.rows // count)
        return np.concatenate([np.asarray(vectors[::step]) for vectors in self])


def encode_corpus(
    store: PassageStore,
    encoder: Encoder,
    folder: Path,
    *,
    prefix: str,
    shard_size: int,
    batch_size: int,
    report: Callable[[str], None],
) -> Shards:
    """Encode every passage's title, newline, text into ``folder``, keeping the shards that are there already.

    The caller vouches that these are of the same corpus, encoder, prefix and shard size. Raises
    :class:`core.errors.DataError` if the disk is full.
    """
    folder.mkdir(exist_ok=True)
    files: list[Path] = []
    cut, encoded, started = 0, 0, time.monotonic()
    for start in range(0, len(store), shard_size):
        file = folder / f"{start:012d}.npy"
        files.append(file)
        texts = [prefix + passage.contents for passage in store.rows(start, start + shard_size)]
        cut += encoder.count_cut(texts)
        if file.is_file():
            continue
        vectors = encoder.encode(texts, batch_size)
        with replacing(file) as temporary, temporary.open("wb") as stream:
            np.save(stream, vectors)
        encoded += len(texts)
        done, speed = start + len(texts), encoded / (time.monotonic() - started)
        report(
            f"{done:,} of {len(store):,} passages encoded, {speed:,.0f}/s, "
            f"{(len(store) - done) / speed / 60:,.0f} min left"
        )
    return Shards(tuple(files), len(store), encoder.dimension, cut)
