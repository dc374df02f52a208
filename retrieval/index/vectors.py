"""The vectors of an index in the making, and what the encoder does not read of its passages."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from corag.core.pace import pace
from corag.core.types import Passage
from retrieval.config import IndexConfig
from retrieval.corpora.formats import DOCUMENTS
from retrieval.dense.build import (
    DOCID,
    EarlierVectors,
    build_lucene_vectors,
    encode_corpus,
    measure_corpus,
)
from retrieval.dense.encoder import CutTexts, TextEncoder
from retrieval.dense.faiss_build import build_faiss, count_ivf_lists
from retrieval.documents.reading import EarlierIndex
from retrieval.index.manifest import SHARDS
from retrieval.index.place import BuildPlace
from retrieval.index.store import PassageStore

_REPORT_EVERY_S = 10.0


def build_vectors(
    passages: Iterator[Passage],
    encoder: TextEncoder,
    place: BuildPlace,
    config: IndexConfig,
    earlier: EarlierIndex | None,
    report: Callable[[str], None],
) -> tuple[str, str]:
    """Encode passages that are being stored, index the vectors.

    Return what the encoder does not read, which is reported before encoding, and what an index that is not
    exact finds; "" for nothing.
    """
    folder = place.building
    store = store_passages(passages, folder, report)
    rows = len(store)
    if config.kind == "dense" and config.faiss == "ivfpq" and not config.trained and not config.train_only:
        # To refuse now what would fail after hours of encoding.
        count_ivf_lists(config, rows, encoder.dimension)
    if cut_note := _describe_cut(
        measure_corpus(store, encoder, config.passage_prefix), rows, encoder, config
    ):
        report(cut_note)
    earlier_vectors = None
    if earlier and EarlierVectors.are_in(place.folder, config):
        earlier_vectors = EarlierVectors(place.folder, earlier.store)
    elif earlier:
        report("an index of this kind does not keep its vectors as they were: all passages are encoded.")
    shards = encode_corpus(
        store,
        encoder,
        folder / SHARDS,
        prompt=config.passage_prefix,
        shard_size=config.shard_size,
        batch_size=encoder.batch_size,
        report=report,
        earlier_vectors=earlier_vectors,
    )
    if earlier_vectors:
        resumption = f", {shards.resumed_rows:,} of the interrupted build" if shards.resumed_rows else ""
        new = rows - earlier_vectors.reuse_count - shards.resumed_rows
        report(f"vectors: {earlier_vectors.reuse_count:,} taken over, {new:,} encoded{resumption}.")
    if config.kind == "dense":
        recall_note = build_faiss(shards, folder, config, report)
    else:
        recall_note = ""
        build_lucene_vectors(shards, map(store.read_id, range(len(store))), folder, config)
    store.close()
    shutil.rmtree(folder / SHARDS)
    return cut_note, recall_note


def store_passages(passages: Iterator[Passage], folder: Path, report: Callable[[str], None]) -> PassageStore:
    """Read passages that are being stored to their end, list their ids, open the store."""
    start = last_report = time.monotonic()
    with (folder / DOCID).open("w", encoding="utf-8") as ids:
        for rows, passage in enumerate(passages, 1):
            ids.write(f"{passage.id}\n")
            if time.monotonic() - last_report >= _REPORT_EVERY_S:
                last_report = time.monotonic()
                report(f"{rows:,} passages read, {pace(rows, last_report - start)}")
    return PassageStore(folder)


def _describe_cut(cut: CutTexts, rows: int, encoder: TextEncoder, config: IndexConfig) -> str:
    """Say how much of the passages the encoder does not read, "" if it reads all."""
    if not cut.cut_texts:
        return ""
    sample = f" in a sample of {rows:,}" if cut.texts < rows else ""
    advice = ""
    if config.format == DOCUMENTS:
        advice = " Add --passage_words auto, and passages are cut to what it reads."
    return (
        f"{cut.cut_texts:,} of {cut.texts:,} passages{sample} are longer than the {encoder.max_tokens} "
        f"tokens that the encoder reads: their ends, {cut.cut_words / max(1, cut.words):.1%} of all words, "
        f"are in no vector.{advice}"
    )
