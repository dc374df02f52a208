"""Vectors of an index that are not encoded: made elsewhere (``vectors``), or of its parts (``merge``)."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corag.core.errors import ConfigError, DataError, IndexMismatchError
from corag.core.seeds import stable_hash
from retrieval.config import IndexConfig
from retrieval.dense.build import INDEX
from retrieval.dense.compressed import REFINE, write_codes
from retrieval.dense.encoder import TextEncoder
from retrieval.dense.faiss_build import build_faiss, write_index
from retrieval.dense.ready_vectors import (
    ReadyVectors,
    are_unit,
    index_part,
    keeps_vectors,
    open_vectors,
    vector_files,
)
from retrieval.dense.recall import measure_recall
from retrieval.dense.vector_check import check_compressed, check_vectors, sample_rows
from retrieval.index.manifest import (
    PART,
    IndexManifest,
    IndexSettings,
    hash_corpus,
    read_manifest,
    require_all_parts,
)
from retrieval.index.place import BuildPlace
from retrieval.index.store import PassageStore
from retrieval.index.vectors import CorpusVectors, Notes, Report


@dataclass(frozen=True)
class VectorFiles(CorpusVectors):
    """Vectors that the same encoder made elsewhere, a row for each record of the corpus."""

    encoder: TextEncoder
    vectors: ReadyVectors
    digest: str

    @classmethod
    def open(cls, config: IndexConfig, encoder: TextEncoder) -> VectorFiles:
        """Open the files. Raises as :func:`open_vectors` does, :class:`ConfigError` for clashing options."""
        files = vector_files(config.vectors)
        vectors = open_vectors(files, encoder.dimension, config.encoder)
        if vectors.faiss_index is not None and (config.faiss != "flat" or config.part):
            what = f"faiss is '{config.faiss}'" if config.faiss != "flat" else f"part is '{config.part}'"
            raise ConfigError(
                f"{vectors.names} is a FAISS index of the type {type(vectors.faiss_index).__name__}, which "
                f"is taken over as it is and whole, but {what}: leave that out, or give the vectors "
                "themselves."
            )
        digest = stable_hash("/".join(file.hash for file in hash_corpus(files)))
        return cls(config, encoder, vectors, digest)

    @property
    def details(self) -> dict[str, str]:
        """Which vectors, and the type of a FAISS index that is taken over."""
        faiss_index = self.vectors.faiss_index
        return {"vectors": self.digest} | (
            {} if faiss_index is None else {"faiss": type(faiss_index).__name__}
        )

    def write(self, store: PassageStore, rows: range, total: int, place: BuildPlace, report: Report) -> Notes:
        """Encode a few passages to compare, then write the vectors or copy the index."""
        if self.vectors.rows != total:
            raise IndexMismatchError(
                f"there are {self.vectors.rows:,} vectors in {self.vectors.names}, but the corpus has "
                f"{total:,} records: name all files of the vectors, and the corpus that they were made of."
            )
        vectors, folder = self.vectors.slice(rows), place.building
        passages = [store.row(row) for row in sample_rows(vectors.rows)]
        what, prefix = f"the vectors of {vectors.names}", self.config.passage_prefix
        if vectors.faiss_index is None or keeps_vectors(vectors.faiss_index):
            check_vectors(
                what, passages, lambda row: vectors.read(row, row + 1)[0], vectors.rows, self.encoder, prefix
            )
        else:
            check_compressed(what, passages, vectors.faiss_index, self.encoder, prefix)
        report(f"{len(passages)} of {vectors.rows:,} passages were encoded again: the vectors are theirs.")
        recall_note = ""
        if vectors.faiss_index is None:
            recall_note = build_faiss(vectors, folder, self.config, report)
        else:
            _copy(vectors.parts[0].file, folder / INDEX)
        where = f"The vectors were made elsewhere ({vectors.names})."
        return [], [where, *_describe_lengths(vectors), recall_note]


def _copy(file: Path, target: Path) -> None:
    try:
        shutil.copyfile(file, target)
    except OSError as error:
        raise DataError(
            f"cannot write '{target}': {error.strerror}. Free some space or choose another place."
        ) from None


def _describe_lengths(vectors: ReadyVectors) -> list[str]:
    """Say that vectors are ranked by inner product, where that is not the cosine."""
    if vectors.faiss_index is not None and not keeps_vectors(vectors.faiss_index):
        return []
    lengths = np.linalg.norm(vectors.sample(100), axis=1)
    if are_unit(lengths):
        return []
    return [
        f"The vectors are of lengths from {lengths.min():.2f} to {lengths.max():.2f} and are ranked by inner "
        "product, so not by cosine alone."
    ]


@dataclass(frozen=True)
class IndexParts(CorpusVectors):
    """The parts of an index, whose vectors together are those of the whole."""

    folders: tuple[Path, ...]
    manifests: tuple[IndexManifest, ...]

    @classmethod
    def open(cls, config: IndexConfig) -> IndexParts:
        """Read which parts there are.

        Raises :class:`IndexMismatchError` for a folder that is no index, or if a part is missing.
        """
        manifest_by_name = {}
        for name in config.merge:
            if (manifest := read_manifest(Path(name))) is None:
                raise IndexMismatchError(
                    f"'{name}' is no finished index: give the folders that corag index --part made, all of "
                    "them."
                )
            manifest_by_name[name] = manifest
        holders = require_all_parts(
            {name: manifest.settings.part for name, manifest in manifest_by_name.items()}
        )
        names = [some[0] for some in holders.values()]
        return cls(config, tuple(map(Path, names)), tuple(manifest_by_name[name] for name in names))

    def require(self, settings: IndexSettings) -> None:
        """Raise :class:`IndexMismatchError`, naming the difference, for parts of another index."""
        part = self.manifests[0].settings
        others = tuple(pair for pair in part.details if pair[0] != PART)
        whole = dataclasses.replace(part, details=others)
        settings.provenance.refuse_other(
            f"the part '{self.folders[0]}'",
            whole.provenance,
            advice="Give the corpus and the options with which the parts were built.",
            error=IndexMismatchError,
        )

    def write(self, store: PassageStore, rows: range, total: int, place: BuildPlace, report: Report) -> Notes:
        """Put the vectors of the parts into one index."""
        import faiss

        folder = place.building
        indexes = [faiss.read_index(str(part / INDEX), faiss.IO_FLAG_MMAP_IFC) for part in self.folders]
        counts = [int(index.ntotal) for index in indexes]
        if sum(counts) != total:
            raise IndexMismatchError(
                f"the parts have {sum(counts):,} vectors, but the corpus has {total:,} passages: build the "
                "parts again from this corpus."
            )
        if self.config.faiss == "ivfpq":
            del indexes  # they are read anew, since what is mapped cannot be written to
            self._merge_compressed(folder, report)
            if self.config.refine and self.config.refine != "none":
                vectors = self._join(REFINE, total)
                write_codes(vectors, folder / REFINE, self.config.refine)
                return [], [measure_recall(vectors, folder, self.config)]
            return [], []
        return [], [build_faiss(self._join(INDEX, total), folder, self.config, report)]

    def _join(self, name: str, total: int) -> ReadyVectors:
        """Return the vectors that the parts have in FAISS files of this name, in order."""
        import faiss

        files = [part / name for part in self.folders]
        indexes = [faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC) for file in files]
        # In blocks of the size of shards, as when they are encoded: a graph depends on that.
        return ReadyVectors(tuple(map(index_part, files, indexes)), 0, total, self.config.shard_size)

    def _merge_compressed(self, folder: Path, report: Report) -> None:
        """Join lists of codes of one training, in the order of the parts."""
        import faiss

        whole: Any = faiss.read_index(str(self.folders[0] / INDEX))
        for part in self.folders[1:]:
            whole.merge_from(faiss.read_index(str(part / INDEX)), whole.ntotal)
            report(f"{whole.ntotal:,} vectors in the index")
        write_index(whole, folder)
