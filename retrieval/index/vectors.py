"""The vectors of an index in the making, and what the encoder does not read of its passages."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from corag.core.pace import pace
from corag.core.types import Passage
from retrieval.config import IndexConfig
from retrieval.corpora.formats import DOCUMENTS
from retrieval.dense.build import (
    DOCID,
    EarlierVectors,
    encode_corpus,
)
from retrieval.dense.encoder import UNLIMITED, TextEncoder
from retrieval.dense.faiss_build import build_faiss, count_ivf_lists
from retrieval.dense.ready_vectors import ReadyVectors, open_vectors
from retrieval.index.manifest import SHARDS, IndexSettings
from retrieval.index.place import BuildPlace
from retrieval.index.store import PassageStore

Report = Callable[[str], None]
_REPORT_EVERY_S = 10.0
_SAMPLE_SIZE = 20_000  # passages whose tokens are counted before encoding: a few seconds; of more, so many
_LOOKED_AT = 1_000  # passages that are in memory at once while their tokens are counted


@dataclass(frozen=True)
class CorpusVectors(ABC):
    """The vectors that an index is made of."""

    config: IndexConfig

    @property
    def details(self) -> dict[str, str]:
        """What they add to the settings of the index, or replace."""
        return {}

    def require(self, settings: IndexSettings) -> None:  # noqa: B027 - encoded ones are of any
        """Raise :class:`IndexMismatchError` if they are of another index than that of these settings."""

    @abstractmethod
    def write(
        self, store: PassageStore, rows: range, total: int, place: BuildPlace, report: Report
    ) -> Iterator[str]:
        """Write the index of the vectors of these passages, yielding notes for the manifest, "" for none.

        ``rows``: of the whole corpus, which has ``total`` passages.
        """


@dataclass(frozen=True)
class EncodedVectors(CorpusVectors):
    """Vectors that the encoder makes now, but for those of an earlier index."""

    encoder: TextEncoder

    def write(
        self, store: PassageStore, rows: range, total: int, place: BuildPlace, report: Report
    ) -> Iterator[str]:
        """Say what the encoder does not read, encode the passages, index the vectors."""
        config, encoder, folder = self.config, self.encoder, place.building
        if config.faiss == "ivfpq":
            # To refuse now what would fail after hours of encoding.
            count_ivf_lists(config, len(store), encoder.dimension)
        yield _describe_cut(store, encoder, config)
        yield build_faiss(self._encode(store, place, report), folder, config, report)
        shutil.rmtree(folder / SHARDS)

    def _encode(self, store: PassageStore, place: BuildPlace, report: Report) -> ReadyVectors:
        is_of_use = place.earlier and EarlierVectors.are_in(place.folder, self.config)
        earlier = EarlierVectors(place.folder) if is_of_use else None
        files, resumed_rows = encode_corpus(
            store,
            self.encoder,
            place.building / SHARDS,
            prompt=self.config.passage_prefix,
            shard_size=self.config.shard_size,
            batch_size=self.encoder.batch_size,
            report=report,
            earlier_vectors=earlier,
        )
        if earlier:
            resumption = f", {resumed_rows:,} of the interrupted build" if resumed_rows else ""
            new = len(store) - earlier.reuse_count - resumed_rows
            report(f"vectors: {earlier.reuse_count:,} taken over, {new:,} encoded{resumption}.")
        return open_vectors(files, self.encoder.dimension, self.config.encoder)


def store_passages(passages: Iterator[Passage], folder: Path, report: Report) -> None:
    """Read passages that are being stored to their end, and list their ids."""
    start = last_report = time.monotonic()
    with (folder / DOCID).open("w", encoding="utf-8") as ids:
        for rows, passage in enumerate(passages, 1):
            ids.write(f"{passage.id}\n")
            if time.monotonic() - last_report >= _REPORT_EVERY_S:
                last_report = time.monotonic()
                report(f"{rows:,} passages read, {pace(rows, last_report - start)}")


def _describe_cut(store: PassageStore, encoder: TextEncoder, config: IndexConfig) -> str:
    """Say how much of the passages the encoder does not read, "" if it reads all; of many, a sample tells."""
    limit = encoder.max_tokens
    if limit == UNLIMITED:
        return ""
    rows, tokens = range(0, len(store), max(1, len(store) // _SAMPLE_SIZE)), list[int]()
    for start in range(0, len(rows), _LOOKED_AT):
        some = (store.row(row).contents for row in rows[start : start + _LOOKED_AT])
        tokens += encoder.count_tokens(config.passage_prefix + text for text in some)
    if not (over := [count - limit for count in tokens if count > limit]):
        return ""
    sample = f" in a sample of {len(store):,}" if len(rows) < len(store) else ""
    advice = ""
    if config.format == DOCUMENTS:
        advice = " Add passage_words=auto, and passages are cut to what it reads."
    return (
        f"{len(over):,} of {len(rows):,} passages{sample} are longer than the {limit} tokens that the "
        f"encoder reads: their ends, {sum(over) / sum(tokens):.1%} of all tokens, are in no vector.{advice}"
    )
