"""Build an index folder from a corpus."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from core.types import Passage
from retrieval.config import IndexConfig
from retrieval.corpora import CorpusReport, read_corpus
from retrieval.dense.build import DOCID, build_faiss, build_lucene_vectors, checked_ivf_lists, encode_corpus
from retrieval.dense.encoder import Encoder
from retrieval.index_manifest import (
    SHARDS,
    IndexManifest,
    IndexSettings,
    begin_build,
    hash_corpus,
    write_manifest,
)
from retrieval.lucene.bm25 import build_lucene
from retrieval.store import PassageStore, storing


def build_index(config: IndexConfig, report: Callable[[str], None]) -> IndexManifest:
    """Build the index that ``config`` describes, or return its manifest if this very index is already there.

    ``report`` is told sentences of progress. An interrupted encoding goes on where it stopped. Raises
    :class:`core.errors.DataError` for a broken corpus, :class:`core.errors.IndexMismatchError` if the folder
    holds something else.
    """
    folder = Path(config.out)
    encoder = None if config.kind == "bm25" else Encoder(config.encoder, config.max_passage_tokens)
    settings = _settings(config, encoder)
    if existing := begin_build(folder, settings, overwrite=config.overwrite):
        report(f"the index '{folder}' is already there ({existing.passages:,} passages): nothing to do.")
        return existing
    corpus = CorpusReport()
    passages = read_corpus(config.corpus, config.format, corpus)
    # The texts go to disk on their way, so that no index has to hold them in memory.
    if encoder is None:
        build_lucene(storing(passages, folder), folder, config.threads or os.cpu_count() or 1, report)
        notes = [f"{corpus}."]
    else:
        cut = _build_dense(passages, encoder, folder, config, report)
        notes = [
            f"{corpus}.",
            f"{cut:,} passages are longer than {encoder.max_tokens} tokens, so lost their end in encoding.",
        ]
    for note in notes:
        report(note)
    return write_manifest(folder, settings, corpus.kept, notes)


def _settings(config: IndexConfig, encoder: Encoder | None) -> IndexSettings:
    # Only what decides what is found: an index differs by nothing else, however it was built. But shard_size,
    # which the stamp needs: an interrupted build must not take up shards of another size.
    corpus = hash_corpus(config.corpus)
    details: dict[str, str] = {"format": config.format}
    if encoder is None:
        return IndexSettings(config.kind, corpus, tuple(details.items()))
    details |= {
        "query_prefix": config.query_prefix,
        "passage_prefix": config.passage_prefix,
        "max_passage_tokens": str(encoder.max_tokens),
        "shard_size": str(config.shard_size),
    }
    if config.kind == "dense":
        details["faiss"] = config.faiss
    if config.kind == "lucene_hnsw" or (config.kind == "dense" and config.faiss == "hnsw"):
        details |= {"hnsw_m": str(config.hnsw_m), "hnsw_ef_construction": str(config.hnsw_ef_construction)}
    if config.kind == "dense" and config.faiss == "ivfpq":
        details |= {"ivf_lists": str(config.ivf_lists), "pq_bytes": str(config.pq_bytes)}
    return IndexSettings(
        config.kind, corpus, tuple(details.items()), config.encoder, encoder.fingerprint, encoder.dimension
    )


def _build_dense(
    passages: Iterator[Passage],
    encoder: Encoder,
    folder: Path,
    config: IndexConfig,
    report: Callable[[str], None],
) -> int:
    """Store the texts, encode them, index the vectors; return how many passages the encoder cut."""
    with (folder / DOCID).open("w", encoding="utf-8") as ids:
        rows = sum(ids.write(f"{passage.id}\n") > 0 for passage in storing(passages, folder))
    if config.kind == "dense" and config.faiss == "ivfpq":
        # To refuse now what would fail after hours of encoding.
        checked_ivf_lists(config, rows, encoder.dimension)
    store = PassageStore(folder)
    shards = encode_corpus(
        store,
        encoder,
        folder / SHARDS,
        prefix=config.passage_prefix,
        shard_size=config.shard_size,
        batch_size=config.batch_size,
        report=report,
    )
    if config.kind == "dense":
        build_faiss(shards, folder, config)
    else:
        build_lucene_vectors(shards, map(store.id_of, range(len(store))), folder, config)
    store.close()
    shutil.rmtree(folder / SHARDS)
    return shards.cut
