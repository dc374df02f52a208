"""Building an index of vectors: encode the corpus into files, of which ``faiss_build`` makes an index."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.pace import pace
from corag.core.system.files import atomic_replace
from retrieval.config import IndexConfig
from retrieval.dense.encoder import TextEncoder
from retrieval.index.store import PassageStore

INDEX, DOCID = "index", "docid"  # Pyserini's names for the FAISS file and for the list of ids, one per line
_REPORT_EVERY_S = 5.0


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


@dataclass
class _Progress:
    """How far encoding has come: a sentence every few seconds."""

    total: int
    report: Callable[[str], None]
    done_rows: int = 0
    encoded_rows: int = 0
    _start: float = field(default_factory=time.monotonic)
    _last_report: float = field(default_factory=time.monotonic)

    def add_encoded(self, rows: int) -> None:
        """Count passages that were encoded."""
        self.done_rows += rows
        self.encoded_rows += rows
        now = time.monotonic()
        if now - self._last_report >= _REPORT_EVERY_S or self.done_rows == self.total:
            self._last_report = now
            rest = self.total - self.done_rows
            speed = pace(self.encoded_rows, now - self._start, self.encoded_rows + rest)
            self.report(f"{self.done_rows:,} of {self.total:,} passages encoded, {speed}")


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
) -> tuple[list[Path], int]:
    """Encode every passage's title, newline, text into files in ``folder``, keeping those that are there.

    Return the files, in order, and how many vectors were there. The caller vouches that these are of the same
    corpus, encoder, prompt and shard size. What ``earlier_vectors`` has under the same prompt is not encoded.
    Raises :class:`corag.core.errors.DataError` if the disk is full.
    """
    folder.mkdir(exist_ok=True)
    files: list[Path] = []
    progress, resumed_rows = _Progress(len(store), report), 0
    for start in range(0, len(store), shard_size):
        file = folder / f"{start:012d}.npy"  # by its first row, so that names sort as rows do
        files.append(file)
        texts = [passage.contents for passage in store.rows(start, start + shard_size)]
        if file.is_file():
            resumed_rows += len(texts)
            progress.done_rows += len(texts)
            continue
        shard, known = np.empty((len(texts), encoder.dimension), np.float32), list[int]()
        if earlier_vectors:
            known, vectors = earlier_vectors.find(texts)
            shard[known] = vectors
            progress.done_rows += len(known)
        # Longest first, as the encoder would order them itself: a batch is padded to little more than its
        # texts.
        order = sorted({*range(len(texts))}.difference(known), key=lambda row: (-len(texts[row]), row))
        for at in range(0, len(order), batch_size):
            batch = order[at : at + batch_size]
            batch_texts = [texts[row] for row in batch]
            shard[batch] = encoder.encode(batch_texts, batch_size, prompt=prompt, kind="document")
            progress.add_encoded(len(batch))
        with atomic_replace(file) as temporary, temporary.open("wb") as stream:
            np.save(stream, shard)
    return files, resumed_rows
