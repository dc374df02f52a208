"""Vectors of an index that are not encoded: made elsewhere (``vectors``), or of its parts (``merge``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corag.core.errors import IndexMismatchError
from corag.core.seeds import stable_hash
from retrieval.config import IndexConfig
from retrieval.dense.build import INDEX
from retrieval.dense.encoder import TextEncoder
from retrieval.dense.faiss_build import build_faiss
from retrieval.dense.ready_vectors import ReadyVectors, open_vectors, vector_files
from retrieval.dense.vector_check import check_vectors, sample_rows
from retrieval.index.manifest import (
    FORM,
    PART,
    IndexManifest,
    IndexSettings,
    hash_corpus,
    read_manifest,
    require_all_parts,
)
from retrieval.index.place import BuildPlace
from retrieval.index.store import PassageStore
from retrieval.index.vectors import CorpusVectors, Report

_UNIT = 1e-2  # how far a length may be from 1 for a vector that was made in half precision


@dataclass(frozen=True)
class VectorFiles(CorpusVectors):
    """Vectors that the same encoder made elsewhere, a row for each record of the corpus."""

    encoder: TextEncoder
    vectors: ReadyVectors
    digest: str

    @classmethod
    def open(cls, config: IndexConfig, encoder: TextEncoder) -> VectorFiles:
        """Open the files. Raises as :func:`open_vectors` does."""
        files = vector_files(config.vectors)
        vectors = open_vectors(files, encoder.dimension, config.encoder)
        return cls(config, encoder, vectors, stable_hash("/".join(file.hash for file in hash_corpus(files))))

    @property
    def details(self) -> dict[str, str]:
        """Which vectors."""
        return {"vectors": self.digest}

    def write(
        self, store: PassageStore, rows: range, total: int, place: BuildPlace, report: Report
    ) -> Iterator[str]:
        """Encode a few passages to compare, then index the vectors."""
        names = self.vectors.names
        if self.vectors.rows != total:
            raise IndexMismatchError(
                f"there are {self.vectors.rows:,} vectors in {names}, but the corpus has {total:,} records: "
                "name all files of the vectors, and the corpus that they were made of."
            )
        vectors = self.vectors.slice(rows)
        numbers = sample_rows(vectors.rows)
        stored = np.concatenate([vectors.read(row, row + 1) for row in numbers])
        passages = [store.row(row) for row in numbers]
        check_vectors(f"the vectors of {names}", passages, stored, self.encoder, self.config.passage_prefix)
        report(f"{len(passages)} of {vectors.rows:,} passages were encoded again: the vectors are theirs.")
        yield f"The vectors were made elsewhere ({names})."
        yield _describe_lengths(vectors)
        yield build_faiss(vectors, place.building, self.config, report)


def _describe_lengths(vectors: ReadyVectors) -> str:
    """Say that vectors are ranked by inner product, where that is not the cosine; else ""."""
    lengths = np.linalg.norm(vectors.sample(100), axis=1)
    if np.abs(lengths - 1).max() <= _UNIT:
        return ""
    return (
        f"The vectors are of lengths from {lengths.min():.2f} to {lengths.max():.2f} and are ranked by inner "
        "product, so not by cosine alone."
    )


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
        by_name = {}
        for name in config.merge:
            if (manifest := read_manifest(Path(name))) is None:
                raise IndexMismatchError(
                    f"'{name}' is no finished index: give the folders that corag index --part made, all of "
                    "them."
                )
            by_name[name] = manifest
        holders = require_all_parts({name: manifest.settings.part for name, manifest in by_name.items()})
        names = [some[0] for some in holders.values()]
        return cls(config, tuple(map(Path, names)), tuple(by_name[name] for name in names))

    def require(self, settings: IndexSettings) -> None:
        """Raise :class:`IndexMismatchError`, naming the difference, for parts of another index."""
        settings.without(*FORM).provenance.refuse_other(
            f"the part '{self.folders[0]}'",
            self.manifests[0].settings.without(PART, *FORM).provenance,
            advice="Give the corpus and the options with which the parts were built.",
            error=IndexMismatchError,
        )

    def write(
        self, store: PassageStore, rows: range, total: int, place: BuildPlace, report: Report
    ) -> Iterator[str]:
        """Put the vectors of the parts into one index."""
        files = [folder / INDEX for folder in self.folders]
        vectors = open_vectors(files, self.manifests[0].settings.dimension, self.config.encoder)
        if vectors.rows != total:
            raise IndexMismatchError(
                f"the parts have {vectors.rows:,} vectors, but the corpus has {total:,} passages: build the "
                "parts again from this corpus."
            )
        yield build_faiss(vectors, place.building, self.config, report)
