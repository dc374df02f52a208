"""Building an index of vectors: encode the corpus in shards, then Lucene, or FAISS (``faiss_build``).

:func:`retrieval.index.build.build_index` calls it for every kind of index but BM25; what it writes is read by
:mod:`retrieval.dense.search`.
"""

from __future__ import annotations

import hashlib
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from corag.core.files import atomic_replace
from corag.core.machine import count_threads
from retrieval.config import IndexConfig
from retrieval.dense.encoder import UNLIMITED, CutTexts, TextEncoder
from retrieval.index.store import PassageStore
from retrieval.lucene.java import java_class, java_path, require_passages, writing_lucene

INDEX, DOCID = "index", "docid"  # Pyserini's names for the FAISS file and for the list of ids, one per line
_SAVE_EVERY_S = 60.0  # of encoding: an interruption loses no more, or a batch if that takes longer
_REPORT_EVERY_S = 5.0
_LOOKED_AT = 1_000  # passages that are in memory at once while their tokens are counted
_SAMPLE_SIZE = 20_000  # passages whose tokens are counted before encoding: a few seconds; of more, so many


class VectorSource(Protocol):
    """The vectors of a corpus, in its order: shards of an encoding, or files from elsewhere."""

    @property
    def rows(self) -> int:
        """How many vectors there are."""
        ...

    @property
    def dimension(self) -> int:
        """Their length."""
        ...

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        """Return them block by block, [rows, dimension]."""
        ...

    def sample(self, count: int) -> NDArray[np.float32]:
        """Return about ``count`` vectors spread evenly over the corpus."""
        ...


@dataclass(frozen=True)
class Shards:
    """The vectors of a corpus: files of float32 [rows, dimension], in order.

    ``resumed_rows``: those that an interrupted build left.
    """

    files: tuple[Path, ...]
    rows: int
    dimension: int
    resumed_rows: int = 0

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return (np.load(file, mmap_mode="r") for file in self.files)

    def sample(self, count: int) -> NDArray[np.float32]:
        """Return about ``count`` vectors spread evenly over the corpus."""
        step = max(1, self.rows // count)
        return np.concatenate([np.asarray(vectors[::step]) for vectors in self])


class EarlierVectors:
    """The vectors of an earlier index, by the text that was encoded: what is still there keeps its vector.

    The caller vouches that encoder and prefix are the same. ``folder``: a FAISS index that keeps its vectors
    as they were, so flat or HNSW. ``reuse_count`` counts those that were of use.
    """

    def __init__(self, folder: Path) -> None:
        import faiss

        store = PassageStore(folder)
        self._index: Any = faiss.read_index(str(folder / INDEX), faiss.IO_FLAG_MMAP_IFC)
        self._rows = {
            _text_key(passage.contents): row for row, passage in enumerate(store.rows(0, len(store)))
        }
        store.close()
        self.reuse_count = 0

    @staticmethod
    def are_in(folder: Path, config: IndexConfig) -> bool:
        """Whether a folder has vectors that can be taken over."""
        return config.kind == "dense" and config.faiss in ("flat", "hnsw") and (folder / INDEX).is_file()

    def find(self, texts: Sequence[str]) -> tuple[list[int], NDArray[np.float32]]:
        """Return the places of the texts that have a vector, and the vectors, [places, dimension]."""
        rows = [self._rows.get(_text_key(text), -1) for text in texts]
        places = [position for position, row in enumerate(rows) if row >= 0]
        self.reuse_count += len(places)
        if not places:
            return [], np.empty((0, self._index.d), np.float32)
        return places, self._index.reconstruct_batch(
            np.array([rows[position] for position in places], np.int64)
        )


def _text_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def measure_corpus(store: PassageStore, encoder: TextEncoder, prompt: str) -> CutTexts:
    """Return how much of the passages the encoder would not read; of a large corpus, of an even sample."""
    counts = CutTexts()
    if encoder.max_tokens == UNLIMITED:
        return counts
    rows = range(0, len(store), max(1, len(store) // _SAMPLE_SIZE))
    for start in range(0, len(rows), _LOOKED_AT):
        texts = [store.row(row).contents for row in rows[start : start + _LOOKED_AT]]
        counts.add(encoder.measure_cut(texts, prompt))
    return counts


@dataclass
class Progress:
    """How far encoding has come: a sentence every few seconds, and after every shard."""

    total: int
    report: Callable[[str], None]
    done_rows: int = 0
    encoded_rows: int = 0
    _last_encoded: int = 0
    _start: float = field(default_factory=time.monotonic)
    _last_report: float = field(default_factory=time.monotonic)

    def add(self, done_rows: int, encoded_rows: int = 0) -> None:
        """Count passages that have their vectors now, and those of them that were encoded for it."""
        self.done_rows += done_rows
        self.encoded_rows += encoded_rows
        if encoded_rows and time.monotonic() - self._last_report >= _REPORT_EVERY_S:
            self.report_progress()

    def report_progress(self) -> None:
        """Report, unless nothing was encoded since the last time."""
        if self.encoded_rows == self._last_encoded:
            return
        self._last_encoded = self.encoded_rows
        self._last_report = time.monotonic()
        speed = self.encoded_rows / max(1e-6, self._last_report - self._start)
        seconds = (self.total - self.done_rows) / speed
        time_left = f"{seconds / 60:,.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
        speed_text = f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
        self.report(
            f"{self.done_rows:,} of {self.total:,} passages encoded, {speed_text}/s, {time_left} left"
        )


class VectorShard:
    """Vectors of consecutive passages in the making, saved from time to time under ``file``'s name.

    What was saved before an interruption is in it from the start. ``missing``: the places without a vector.
    """

    def __init__(self, file: Path, size: int, dimension: int) -> None:
        self._file = file
        self._vectors = np.empty((size, dimension), np.float32)
        self._has = np.zeros(size, bool)
        self._new_places: list[int] = []
        self._parts = 0
        for part in sorted(file.parent.glob(f"{file.stem}.part*.npz")):
            self._parts = int(part.stem.rpartition(".part")[2]) + 1
            # What cannot be read, after a disk's failure, is encoded again.
            with (
                suppress(OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile),
                np.load(part) as arrays,
            ):
                self._put(arrays["places"], arrays["vectors"])

    @property
    def missing(self) -> list[int]:
        """The places that have no vector yet."""
        return [int(position) for position in np.flatnonzero(~self._has)]

    def put(self, places: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Set vectors."""
        self._put(places, vectors)
        self._new_places += places

    def _put(self, places: Sequence[int] | NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        self._vectors[places] = vectors
        self._has[places] = True

    def save(self) -> None:
        """Write what is new since the last call, so that no interruption loses it."""
        if not self._new_places:
            return
        part = self._file.with_name(f"{self._file.stem}.part{self._parts:06d}.npz")
        with atomic_replace(part) as temporary, temporary.open("wb") as stream:
            np.savez(stream, places=np.array(self._new_places), vectors=self._vectors[self._new_places])
        self._parts += 1
        self._new_places = []

    def finish(self) -> None:
        """Write the whole shard in place of its parts."""
        with atomic_replace(self._file) as temporary, temporary.open("wb") as stream:
            np.save(stream, self._vectors)
        for part in self._file.parent.glob(f"{self._file.stem}.part*.npz"):
            part.unlink()


def encode_corpus(
    store: PassageStore,
    encoder: TextEncoder,
    folder: Path,
    *,
    prompt: str,
    shard_size: int,
    batch_size: int,
    report: Callable[[str], None],
    earlier_vectors: EarlierVectors | None = None,
) -> Shards:
    """Encode every passage's title, newline, text into ``folder``, keeping the vectors that are there.

    The caller vouches that these are of the same corpus, encoder, prompt and shard size. An interruption,
    ``kill -9`` too, loses what was encoded since the last minute. What ``earlier_vectors`` has under the same
    prompt is not encoded. Raises :class:`corag.core.errors.DataError` if the disk is full.
    """
    folder.mkdir(exist_ok=True)
    files: list[Path] = []
    progress, resumed_rows, last_save = Progress(len(store), report), 0, time.monotonic()
    for start in range(0, len(store), shard_size):
        file = folder / f"{start:012d}.npy"  # by its first row, so that names sort as rows do
        files.append(file)
        size = min(shard_size, len(store) - start)
        if file.is_file():
            resumed_rows += size
            progress.add(size)
            continue
        texts = [passage.contents for passage in store.rows(start, start + shard_size)]
        shard = VectorShard(file, size, encoder.dimension)
        resumed_vectors = size - len(shard.missing)
        resumed_rows += resumed_vectors
        progress.add(resumed_vectors)
        if earlier_vectors:
            missing = shard.missing
            places, vectors = earlier_vectors.find([texts[position] for position in missing])
            shard.put([missing[position] for position in places], vectors)
            progress.add(len(places))
        # Longest first, as the encoder would order them itself: a batch is padded to little more than its
        # texts. What is resumed has the same batches, so the same vectors to the last bit.
        order = sorted(shard.missing, key=lambda position: -len(texts[position]))
        try:
            for at in range(0, len(order), batch_size):
                batch = order[at : at + batch_size]
                vectors = encoder.encode(
                    [texts[position] for position in batch], batch_size, prompt=prompt, kind="document"
                )
                shard.put(batch, vectors)
                progress.add(len(batch), len(batch))
                if time.monotonic() - last_save >= _SAVE_EVERY_S:
                    shard.save()
                    last_save = time.monotonic()
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C and SIGTERM leave the time that kill -9 does not
            shard.save()
            raise
        shard.finish()
        last_save = time.monotonic()
        if order:
            progress.report_progress()
    return Shards(tuple(files), len(store), encoder.dimension, resumed_rows)


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
    arguments.threads = config.threads or count_threads()
    arguments.optimize = arguments.quiet = True  # one segment, so one graph to search
    if config.kind == "lucene_hnsw":
        arguments.M, arguments.efC = config.hnsw_m, config.hnsw_ef_construction
    with writing_lucene(folder):
        java_class(indexer)(arguments).run()
    require_passages(folder, shards.rows)
    shutil.rmtree(handover)
    (folder / "write.lock").unlink(missing_ok=True)
