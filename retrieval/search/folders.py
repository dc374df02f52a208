"""Opening an index folder to be searched: of Lucene, of vectors, or as Pyserini makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from corag.core.errors import IndexMismatchError
from corag.core.seeds import stable_hash
from corag.core.system.installation import require
from corag.core.system.machine import count_threads
from corag.core.web.servers import is_address
from retrieval.config import Bm25, RetrieverConfig
from retrieval.corpora.formats import AUTO
from retrieval.dense.build import DOCID, INDEX
from retrieval.dense.device_choice import choose_vector_devices
from retrieval.dense.encoder import UNLIMITED, TextEncoder
from retrieval.dense.open_encoder import load_encoder, open_encoder, packages_of
from retrieval.dense.prompts import AUTO as OWN_PROMPT
from retrieval.dense.search import DenseSearcher, FaissIndex
from retrieval.dense.torch_search import resolve_devices
from retrieval.dense.vector_check import sample_rows
from retrieval.index.manifest import (
    INDEX_FILE,
    LANGUAGE,
    REBUILD,
    IndexManifest,
    read_manifest,
)
from retrieval.index.place import was_begun
from retrieval.index.store import Lines, PassageStore
from retrieval.lucene.bm25 import LuceneSearcher, is_lucene_index
from retrieval.lucene.languages import ENGLISH
from retrieval.search.batched import BatchedRetriever
from retrieval.search.places import find_index_folder
from retrieval.search.stage import PassageSource

_MANY_THREADS = 8

_TWO_ENCODERS = (
    "If passages have an encoder of their own (DPR), name it: 'retriever.passage_encoder'. Models without a "
    "folder of sentence-transformers get the mean of all tokens, where DPR, ANCE and others take the first."
)


def open_index(name: str, config: RetrieverConfig) -> BatchedRetriever:
    """Open an index by its name, a folder or one of Pyserini's prebuilt ones."""
    return _open_folder(find_index_folder(name), config)


def _open_folder(folder: Path, config: RetrieverConfig) -> BatchedRetriever:
    manifest = read_manifest(folder)
    if manifest and manifest.settings.kind == "dense":
        return _open_dense(folder, manifest, config)
    if manifest is None and (folder / INDEX).is_file() and (folder / DOCID).is_file():
        return _open_pyserini_faiss(folder, config)
    if not is_lucene_index(folder) or (manifest is None and was_begun(folder)):
        raise IndexMismatchError(
            f"'{folder}' is not a complete index: it has neither the manifest {INDEX_FILE}, which is written "
            "last, nor a plain Lucene or Pyserini FAISS index. Run `corag index` with the same settings to "
            "finish or build it."
        )
    bm25 = Bm25.from_config(config)
    language = (manifest.settings.detail(LANGUAGE) if manifest else config.language) or ENGLISH
    searcher = LuceneSearcher(folder, bm25, config.threads, language)
    if manifest:
        _refuse_other_counts(folder, manifest, searcher.size)
    # A manifest's fingerprint has its language in it.
    suffix = f"|{language}" if manifest is None and language != ENGLISH else ""
    contents = _contents_fingerprint(folder, manifest)
    # Lucene waits for the slowest query of a batch: meanwhile many cores search for those of another. Two
    # cores gain nothing by it (0.92 to 1.01 times the speed, a bench of 567bef8).
    at_once = 2 if (config.threads or count_threads()) >= _MANY_THREADS else 1
    return BatchedRetriever(searcher, stable_hash(f"{contents}|{bm25}{suffix}"), folder, at_once=at_once)


def _open_dense(folder: Path, manifest: IndexManifest, config: RetrieverConfig) -> BatchedRetriever:
    settings = manifest.settings
    name = config.encoder or settings.encoder
    require(f"the index '{folder}'", *packages_of(name), "faiss")
    most_tokens = int(settings.detail("max_passage_tokens") or 0)
    encoder = open_encoder(
        name,
        most_tokens if most_tokens != UNLIMITED else 0,  # a server does not tell how much it reads
        settings.encoder_fingerprint,
        config.placement,
    )
    # Of a served model nothing shows the weights: there vectors of passages are compared, if they can be.
    is_served = is_address(encoder.name) or is_address(settings.encoder)
    is_compared = is_served and encoder.dimension == settings.dimension
    if encoder.fingerprint != settings.encoder_fingerprint and not is_compared:
        raise IndexMismatchError(
            f"the index '{folder}' was built with the encoder '{settings.encoder}' ({settings.dimension} "
            f"dimensions, fingerprint {settings.encoder_fingerprint}), but '{encoder.name}' "
            f"({encoder.dimension} dimensions, fingerprint {encoder.fingerprint}) is to search it: use the "
            "same encoder, or build the index again with this one."
        )
    store = PassageStore(folder)
    vectors = _open_faiss(folder, store.read_id, config, _choose_device(manifest, config)[0])
    _refuse_other_counts(folder, manifest, vectors.rows, len(store))
    if is_compared:
        passages = [store.row(row) for row in sample_rows(len(store))]
        what = f"the vectors of the index '{folder}'"
        vectors.check(what, passages, encoder, settings.detail("passage_prefix"))
    searcher = DenseSearcher(encoder, vectors, store, settings.detail("query_prefix"))
    how = f"{config.ef_search}|{config.nprobe}{encoder.rounding and '|' + encoder.rounding}"
    if encoder.fingerprint != settings.encoder_fingerprint:
        how += f"|{encoder.fingerprint}"
    part = settings.part
    if part is not None:
        part = replace(part, whole=stable_hash(f"{part.whole}|{how}"))
    return BatchedRetriever(searcher, stable_hash(f"{manifest.fingerprint}|{how}"), folder, part)


def _refuse_other_counts(folder: Path, manifest: IndexManifest, *counts: int) -> None:
    """Raise :class:`IndexMismatchError` for files of the right size that are another index's."""
    if set(counts) != {manifest.passages}:
        raise IndexMismatchError(
            f"the index '{folder}' has {' and '.join(f'{count:,}' for count in counts)} passages, but its "
            f"manifest says {manifest.passages:,}: it is damaged. {REBUILD}"
        )


def _open_pyserini_faiss(folder: Path, config: RetrieverConfig) -> BatchedRetriever:
    """Open a folder with ``index`` and ``docid`` only, as Pyserini makes them, without encoder and texts."""
    if not config.encoder or not config.passages_from:
        raise IndexMismatchError(
            f"'{folder}' is a FAISS index of Pyserini's, which names neither its encoder nor its texts: set "
            "`encoder` (and `query_prefix`), and `passages_from` to the Lucene index of the same corpus."
        )
    require(f"the index '{folder}'", *packages_of(config.encoder), "faiss")
    ids = Lines(folder / DOCID)
    encoder = load_encoder(config.encoder, placement=config.placement)
    # Whether such a folder is exact, and how long its vectors are, is known when it is open.
    where = "" if config.search_device == AUTO else config.search_device
    vectors = _open_faiss(folder, ids.__getitem__, config, where)
    if vectors.dimension != encoder.dimension or vectors.rows != len(ids):
        raise IndexMismatchError(
            f"the FAISS index '{folder}' has {vectors.rows:,} vectors of {vectors.dimension} dimensions, but "
            f"its docid file has {len(ids):,} ids and the encoder '{config.encoder}' gives "
            f"{encoder.dimension} dimensions: they do not match."
        )
    source = find_index_folder(config.passages_from)
    texts: PassageSource = LuceneSearcher(source, Bm25.from_config(config), config.threads)
    _check_passages(folder, ids, vectors, texts, encoder, config)
    contents = f"{_contents_fingerprint(folder, None)}|{_contents_fingerprint(source, read_manifest(source))}"
    prompt = encoder.resolve_prompt(config.query_prefix, "query")
    fingerprint = f"{contents}|{encoder.fingerprint}|{prompt}{encoder.rounding}"
    searcher = DenseSearcher(encoder, vectors, texts, prompt)
    how = f"{config.ef_search}|{config.nprobe}"
    return BatchedRetriever(searcher, stable_hash(f"{fingerprint}|{how}"), folder)


def _check_passages(
    folder: Path,
    ids: Lines,
    vectors: FaissIndex,
    texts: PassageSource,
    encoder: TextEncoder,
    config: RetrieverConfig,
) -> None:
    """Raise :class:`IndexMismatchError` unless the vectors of a few passages are those that were encoded."""
    names = [ids[row] for row in sample_rows(vectors.rows)]
    by_id = texts.passages(names)
    if missing := [name for name in names if name not in by_id]:
        raise IndexMismatchError(
            f"the passage '{missing[0]}' of the FAISS index '{folder}' is not in '{config.passages_from}': "
            "set `passages_from` to the Lucene index of the same corpus."
        )
    if config.passage_encoder:
        encoder = load_encoder(config.passage_encoder, placement=config.placement)
    what = f"the vectors of the FAISS index '{folder}'"
    advice = "" if config.passage_encoder else _TWO_ENCODERS
    prefix = encoder.resolve_prompt(OWN_PROMPT, "document")
    vectors.check(what, [by_id[name] for name in names], encoder, prefix, advice)


def _open_faiss(
    folder: Path, read_id: Callable[[int], str], config: RetrieverConfig, search_device: str
) -> FaissIndex:
    return FaissIndex(
        folder / INDEX,
        read_id,
        ef_search=config.ef_search,
        nprobe=config.nprobe,
        threads=config.threads,
        devices=resolve_devices(search_device) if search_device else (),
    )


def search_device_note(config: RetrieverConfig) -> str:
    """Return why an exact index is searched on the CPU though GPUs are here; "" for nothing to say."""
    for name in config.index:
        manifest = read_manifest(Path(name))
        if manifest is not None and (note := _choose_device(manifest, config)[1]):
            return note
    return ""


def _choose_device(manifest: IndexManifest, config: RetrieverConfig) -> tuple[str, str]:
    if config.search_device == AUTO and manifest.settings.detail("faiss") != "flat":
        return "", ""
    return choose_vector_devices(
        config.search_device, config.device, manifest.passages, manifest.settings.dimension
    )


def _contents_fingerprint(folder: Path, manifest: IndexManifest | None) -> str:
    """The manifest's fingerprint; without one, the names and sizes of the index files."""
    if manifest:
        return manifest.fingerprint
    return stable_hash("|".join(f"{file.name} {file.stat().st_size}" for file in sorted(folder.iterdir())))
