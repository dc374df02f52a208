"""Build an index folder from a corpus."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from core.errors import ConfigError, DataError
from core.files import file_digest, filling
from core.types import Passage
from retrieval.config import IndexConfig
from retrieval.corpora import DOCUMENTS, format_of, read_corpus
from retrieval.dense.build import (
    DOCID,
    INDEX,
    KnownVectors,
    build_faiss,
    build_lucene_vectors,
    checked_ivf_lists,
    encode_corpus,
    training_rows,
)
from retrieval.dense.encoder import Encoder
from retrieval.documents.passages import Cutting
from retrieval.documents.reading import FILES, READING, DocumentCorpus, Earlier, hashes_read, write_reports
from retrieval.index_manifest import (
    BEFORE,
    INDEX_FILE,
    PART,
    SHARDS,
    TRAINED,
    TRAINING,
    CorpusFile,
    IndexManifest,
    IndexPart,
    IndexSettings,
    begin_build,
    hash_corpus,
    write_manifest,
)
from retrieval.lucene.bm25 import build_lucene
from retrieval.sifting import CorpusReport, sift
from retrieval.store import STORE_FILES, PassageStore, storing

OF_USE = (*STORE_FILES, FILES, INDEX)
"""What an index of documents has that is still of use when some of them have changed."""


def build_index(config: IndexConfig, report: Callable[[str], None]) -> IndexManifest:
    """Build the index that ``config`` describes, or return its manifest if this very index is already there.

    An index of documents of which some have changed is brought up to date: what has not changed is neither
    read nor encoded again. ``report`` is told sentences of progress. An interrupted encoding goes on where it
    stopped. Raises :class:`core.errors.DataError` for a broken corpus, or a folder that cannot be written,
    :class:`core.errors.IndexMismatchError` if it holds something else.
    """
    with filling(Path(config.out), "the index "):
        return _build(config, report)


def _build(config: IndexConfig, report: Callable[[str], None]) -> IndexManifest:
    config = replace(config, format=format_of(config.corpus, config.format))
    documents = _documents(config)
    files = documents.hashes if documents else hash_corpus(config.corpus)
    folder = Path(config.out)
    encoder = None if config.kind == "bm25" else Encoder(config.encoder, config.max_passage_tokens)
    settings = _settings(config, files, encoder)
    if documents and not config.overwrite:
        _refuse_unreadable(documents, folder)
    keeping = OF_USE if documents else ()
    if existing := begin_build(folder, settings, overwrite=config.overwrite, keeping=keeping):
        report(f"the index '{folder}' is already there ({existing.passages:,} passages): nothing to do.")
        return existing
    corpus = CorpusReport()
    earlier = Earlier.of(folder / BEFORE)
    if documents:
        if earlier:
            report(f"{earlier.changes(files)}.")
        read = documents.passages(corpus, earlier, report)
        passages = sift(read, corpus, ", ".join(config.corpus))
    else:
        passages = read_corpus(config.corpus, config.format, corpus)
    rows = range(0)
    if config.part or config.train_only:
        rows, lists = _chosen_rows(config, encoder)
        config = replace(config, ivf_lists=lists)
        report(f"{len(rows):,} passages of the corpus, from number {rows.start:,} on.")
        passages = islice(passages, rows.start, rows.stop, rows.step)
    # The texts go to disk on their way, so that no index has to hold them in memory.
    passages = storing(passages, folder)
    if encoder is None:
        build_lucene(passages, folder, config.threads or os.cpu_count() or 1, report)
        notes = [f"{corpus}."]
    else:
        cut = _build_dense(passages, encoder, folder, config, earlier, report)
        notes = [f"{corpus}."]
        if cut:
            notes.append(
                f"{cut:,} passages are longer than {encoder.max_tokens} tokens, so lost their end in encoding"
                + (f": passage_words below {config.passage_words} would keep it." if documents else ".")
            )
    if documents:
        write_reports(folder, corpus.files)
        notes += documents.notes(corpus)
    for note in notes:
        report(note)
    if earlier:
        earlier.store.close()
    shutil.rmtree(folder / BEFORE, ignore_errors=True)
    return write_manifest(folder, settings, len(rows) or corpus.kept, notes)


def _chosen_rows(config: IndexConfig, encoder: Encoder | None) -> tuple[range, int]:
    """Return which passages of a corpus are a part's, or are trained on: those spread evenly over it.

    With them the number of lists of an "ivfpq" index over all of it. The corpus is read once more for this,
    since nobody knows before how many passages are kept.
    """
    assert encoder is not None
    total = sum(1 for _ in read_corpus(config.corpus, config.format, CorpusReport()))
    if config.part:
        if not (rows := IndexPart.parse(config.part).rows(total)):
            raise ConfigError(f"part {config.part} of {total:,} passages would be empty: make fewer parts.")
        return rows, config.ivf_lists
    lists = checked_ivf_lists(config, total, encoder.dimension)
    return range(0, total, max(1, total // training_rows(lists))), lists


def _documents(config: IndexConfig) -> DocumentCorpus | None:
    """Find the documents of a configuration; None if its corpus is another."""
    if config.format == DOCUMENTS:
        return DocumentCorpus(config.corpus, config.cutting)
    if config.cutting != Cutting():
        raise ConfigError(
            "passage_words and passage_overlap are for documents, but the corpus is read as "
            f"'{config.format}', whose passages are taken as they stand: leave both out."
        )
    return None


def _refuse_unreadable(documents: DocumentCorpus, folder: Path) -> None:
    """Raise :class:`DataError` if an index would be taken apart for documents none of which can be read."""
    whole = all((folder / name).is_file() for name in (INDEX_FILE, FILES))
    if whole and not documents.has_passages(hashes_read(folder)):
        raise DataError(
            f"none of the documents can be read, so the index '{folder}' stays as it was: it is searched as "
            "before. Check the documents, or choose another `out`."
        )


def _settings(config: IndexConfig, files: tuple[CorpusFile, ...], encoder: Encoder | None) -> IndexSettings:
    # Only what decides what is found: an index differs by nothing else, however it was built. But shard_size,
    # which the stamp needs: an interrupted build must not take up shards of another size.
    details: dict[str, str] = {"format": config.format}
    if config.format == DOCUMENTS:
        details |= {
            "passage_words": str(config.passage_words),
            "passage_overlap": str(config.passage_overlap),
            "reading": READING,
        }
    if encoder is None:
        return IndexSettings(config.kind, files, tuple(details.items()))
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
        if config.trained:
            details[TRAINED] = file_digest(Path(config.trained) / INDEX)
    if config.train_only:
        details[TRAINING] = "only"
    if config.part:
        details[PART] = str(IndexPart.parse(config.part))
    return IndexSettings(
        config.kind, files, tuple(details.items()), config.encoder, encoder.fingerprint, encoder.dimension
    )


def _build_dense(
    passages: Iterator[Passage],
    encoder: Encoder,
    folder: Path,
    config: IndexConfig,
    earlier: Earlier | None,
    report: Callable[[str], None],
) -> int:
    """Encode passages that are being stored, index the vectors; return how many passages the encoder cut."""
    with (folder / DOCID).open("w", encoding="utf-8") as ids:
        rows = sum(ids.write(f"{passage.id}\n") > 0 for passage in passages)
    if config.kind == "dense" and config.faiss == "ivfpq" and not config.trained and not config.train_only:
        # To refuse now what would fail after hours of encoding.
        checked_ivf_lists(config, rows, encoder.dimension)
    store = PassageStore(folder)
    known = None
    if earlier and KnownVectors.are_in(folder / BEFORE, config):
        known = KnownVectors(folder / BEFORE, earlier.store)
    elif earlier:
        report("an index of this kind does not keep its vectors as they were: all passages are encoded.")
    shards = encode_corpus(
        store,
        encoder,
        folder / SHARDS,
        prefix=config.passage_prefix,
        shard_size=config.shard_size,
        batch_size=config.batch_size,
        report=report,
        known=known,
    )
    if known:
        found = f", {shards.found:,} of the interrupted build" if shards.found else ""
        new = rows - known.taken - shards.found
        report(f"vectors: {known.taken:,} taken over, {new:,} encoded{found}.")
    if config.kind == "dense":
        build_faiss(shards, folder, config)
    else:
        build_lucene_vectors(shards, map(store.id_of, range(len(store))), folder, config)
    store.close()
    shutil.rmtree(folder / SHARDS)
    return shards.cut
