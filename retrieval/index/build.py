"""Build an index folder from a corpus."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.runs.folder import ANOTHER_OUT
from corag.core.system.files import build_folder
from corag.core.system.folder_lock import lock_folder, refuse_if_locked
from corag.core.system.installation import require
from corag.core.system.machine import count_threads
from corag.core.types import Passage
from retrieval.config import GRAPHS, MAIN, IndexConfig
from retrieval.corpora.files import expand_corpus
from retrieval.corpora.formats import (
    AUTO,
    DOCUMENTS,
    check_columns,
    detect_format,
    read_corpus,
    refuse_other_records,
)
from retrieval.corpora.sifting import CorpusReport, sift
from retrieval.dense.encoder import TextEncoder
from retrieval.dense.fitting import fitting_words, split_to_fit
from retrieval.dense.open_encoder import load_encoder, packages_of
from retrieval.documents.passages import Cutting
from retrieval.documents.reading import (
    READING,
    DocumentCorpus,
    EarlierIndex,
    write_reports,
)
from retrieval.index.aliases import Aliases
from retrieval.index.given_vectors import IndexParts, VectorFiles
from retrieval.index.long_units import build_units
from retrieval.index.manifest import (
    LANGUAGE,
    PART,
    CorpusFile,
    IndexManifest,
    IndexPart,
    IndexSettings,
    hash_corpus,
    write_manifest,
)
from retrieval.index.place import (
    BuildPlace,
    begin_build,
    building_folder,
    find_index,
    rename_into_place,
)
from retrieval.index.store import PassageStore, storing
from retrieval.index.vectors import CorpusVectors, EncodedVectors, store_passages
from retrieval.lucene.bm25 import build_lucene
from retrieval.lucene.jar import find_jar
from retrieval.lucene.java import find_java
from retrieval.lucene.languages import ENGLISH


def build_index(config: IndexConfig, report: Callable[[str], None]) -> IndexManifest:
    """Build the index that ``config`` describes, or return its manifest if this very index is already there.

    An index of documents of which some have changed is brought up to date: what has not changed is neither
    read nor encoded again. The new index is built beside the one that is there, which is searched until the
    new one takes its place. ``report`` gets sentences of progress. An interrupted encoding goes
    on where it stopped. Raises :class:`DataError` for a broken corpus, or a folder that cannot be written,
    :class:`corag.core.errors.IndexMismatchError` if it holds something else, :class:`ConfigError` if another
    process is building it.
    """
    folder = Path(config.out)
    refuse_if_locked(folder, beside=True, advice=ANOTHER_OUT)  # now, not after an encoder was opened
    with build_folder(folder, "the index ", building_folder(folder)):
        manifest = _build(config, report)
    if config.long_units:
        report(build_units(config, manifest))
    return manifest


def _build(config: IndexConfig, report: Callable[[str], None]) -> IndexManifest:
    _check_installed(config)
    config = replace(config, corpus=expand_corpus(config.corpus, report))
    given_format = config.format
    config = replace(config, format=detect_format(config.corpus, given_format))
    if given_format == AUTO and config.format != DOCUMENTS and not config.columns:
        refuse_other_records(config.corpus, config.reading)
    check_columns(config.format, config.reading)
    encoder, prompt = None, ""
    if config.kind == "dense":
        encoder = load_encoder(config.encoder, config.max_passage_tokens, config.placement)
        config = _with_prompts(config, encoder, report)
        prompt = config.passage_prefix
    documents = None
    if config.format == DOCUMENTS:
        cutting, fit = config.cutting, None
        if encoder and config.passage_words == "auto":
            cutting = Cutting(fitting_words(encoder, prompt), config.passage_overlap)
            fit = partial(split_to_fit, encoder=encoder, prompt=prompt)
        documents = DocumentCorpus(config.corpus, cutting, fit, main=config.html == MAIN)
    files = documents.hashes if documents else hash_corpus(config.corpus)
    folder = Path(config.out)
    vectors = _open_vectors(config, encoder) if encoder else None
    settings = _settings(config, files, encoder, vectors.details if vectors else {})
    if vectors:
        vectors.require(settings)
    existing = None if config.overwrite else find_index(folder, settings)
    if existing:
        report(f"the index '{folder}' is already there ({existing.passages:,} passages): nothing to do.")
        return existing
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), config.out)
    with lock_folder(folder, work="corag index", beside=True, advice=ANOTHER_OUT):
        place = begin_build(folder, settings, overwrite=config.overwrite, updates=documents is not None)
        # Complete, if an interruption came just before it was renamed.
        manifest = find_index(place.building, settings)
        manifest = manifest or _fill(config, settings, place, documents, vectors, report)
        rename_into_place(place)
    return manifest


def _fill(
    config: IndexConfig,
    settings: IndexSettings,
    place: BuildPlace,
    documents: DocumentCorpus | None,
    vectors: CorpusVectors | None,
    report: Callable[[str], None],
) -> IndexManifest:
    """Build an index beside its place."""
    corpus, folder = CorpusReport(), place.building
    earlier = EarlierIndex.open(place.folder) if documents and place.earlier else None
    if earlier:
        report(f"{earlier.changes(settings.corpus)}.")
    if documents:
        items = documents.passages(corpus, earlier, report)
        passages = sift(items, corpus, ", ".join(config.corpus), strict=config.strict)
    else:
        passages = _read(config, corpus)
    part = _PartOfCorpus.choose(config) if config.part else None
    if part:
        report(str(part))
        passages = islice(passages, part.rows.start, part.rows.stop)
    # The texts go to disk on their way, so that no index has to hold them in memory.
    passages = storing(passages, folder)
    if vectors is None:
        build_lucene(passages, folder, config.threads or count_threads(), report, config.language)
    else:
        store_passages(passages, folder, report)
    notes = part.sentences() if part else corpus.sentences()
    if documents:
        write_reports(folder, corpus.files)
        notes += documents.notes(corpus)
    for note in notes:
        report(note)
    if earlier:
        earlier.store.close()
    whole = part.whole if part else corpus
    rows = part.rows if part else range(corpus.passages)
    store = PassageStore(folder)
    for note in vectors.write(store, rows, whole.passages, place, report) if vectors else ():
        if note:
            report(note)
            notes.append(note)
    _save_aliases(folder, store, whole, rows)
    store.close()
    return write_manifest(folder, settings, len(rows), notes)


def _check_installed(config: IndexConfig) -> None:
    """Raise a sentence if something is missing that is wanted only when all passages have been read."""
    if config.kind == "dense":
        require("an index with vectors", *packages_of(config.encoder), "faiss")
    else:
        find_java()
        find_jar()


def _read(config: IndexConfig, corpus: CorpusReport) -> Iterator[Passage]:
    """Stream the passages of a corpus that is no documents."""
    return read_corpus(
        config.corpus,
        config.format,
        corpus,
        config.reading,
        strict=config.strict,
        keep_all=bool(config.vectors),
    )


def _open_vectors(config: IndexConfig, encoder: TextEncoder) -> CorpusVectors:
    """Return the vectors of an index: encoded now, made elsewhere, or those of its parts."""
    if config.format == DOCUMENTS and (config.vectors or config.merge or config.part):
        raise ConfigError(
            "'vectors', 'merge' and 'part' are for passages as they stand, but the corpus is read as "
            "documents, which are cut into passages: leave them out, or give passages."
        )
    if config.vectors:
        return VectorFiles.open(config, encoder)
    return IndexParts.open(config) if config.merge else EncodedVectors(config, encoder)


@dataclass(frozen=True)
class _PartOfCorpus:
    """Which passages of a corpus are a part's. ``whole``: what became of all of its records."""

    part: str
    rows: range
    whole: CorpusReport

    @classmethod
    def choose(cls, config: IndexConfig) -> _PartOfCorpus:
        """Read the corpus once more: before, the number of passages that are kept is unknown."""
        whole = CorpusReport()
        total = sum(1 for _ in _read(config, whole))
        if not (rows := IndexPart.parse(config.part).rows(total)):
            raise ConfigError(f"part {config.part} of {total:,} passages would be empty: make fewer parts.")
        return cls(config.part, rows, whole)

    def __str__(self) -> str:
        numbers = f"numbers {self.rows.start + 1:,} to {self.rows.stop:,} of the corpus's"
        return f"Part {self.part}: {len(self.rows):,} passages, {numbers} {self.whole.passages:,}."

    def sentences(self) -> list[str]:
        """Return what the index's manifest says of its corpus: the counts are those of the whole."""
        counts, *others = self.whole.sentences()
        return [str(self), f"Of the whole corpus: {counts}", *others]


def _save_aliases(folder: Path, store: PassageStore, corpus: CorpusReport, rows: range) -> None:
    """Write which ids were dropped as repeats of a passage that is in these rows of the corpus."""
    ids = {name: store.read_id(rows.index(row)) for name, row in corpus.same_as if row in rows}
    Aliases(ids, numbered=corpus.shared_ids > 0).save(folder)


def _with_prompts(config: IndexConfig, encoder: TextEncoder, report: Callable[[str], None]) -> IndexConfig:
    """Return the configuration with the encoder's own prompts in place of "auto", and say which they are."""
    query = encoder.resolve_prompt(config.query_prefix, "query")
    document = encoder.resolve_prompt(config.passage_prefix, "document")
    if (query or document) and (query, document) != (config.query_prefix, config.passage_prefix):
        report(
            f"the encoder '{encoder.name}' was trained with prompts, which are used: {query!r} before every "
            f"query, {document!r} before every passage (query_prefix='' passage_prefix='' for none)."
        )
    return replace(config, query_prefix=query, passage_prefix=document)


def _settings(
    config: IndexConfig,
    files: tuple[CorpusFile, ...],
    encoder: TextEncoder | None,
    vector_details: Mapping[str, str],
) -> IndexSettings:
    # Only what decides what is found: an index differs by nothing else, however it was built. But shard_size,
    # which the provenance needs: an interrupted build must not take up shards of another size.
    details: dict[str, str] = {"format": config.format}
    if config.columns:
        details["columns"] = ",".join(config.columns)
    if config.encoding:
        details["encoding"] = config.encoding
    if config.delimiter:
        details["delimiter"] = config.delimiter
    if config.format == DOCUMENTS:
        details |= {
            "passage_words": str(config.passage_words),
            "passage_overlap": str(config.passage_overlap),
            "reading": READING,
        }
        if config.html == MAIN:
            details["html"] = config.html
    if encoder is None:
        if config.language != ENGLISH:  # an index that names none is English
            details[LANGUAGE] = config.language
        return IndexSettings(config.kind, files, tuple(details.items()))
    details |= {
        "query_prefix": config.query_prefix,
        "passage_prefix": config.passage_prefix,
        "max_passage_tokens": str(encoder.max_tokens),
        "shard_size": str(config.shard_size),
    }
    if encoder.rounding:
        details["encoder_dtype"] = encoder.rounding
    details["faiss"] = config.faiss or "flat"
    if config.faiss in GRAPHS:
        details |= {"hnsw_m": str(config.hnsw_m), "hnsw_ef_construction": str(config.hnsw_ef_construction)}
    if config.faiss == "ivfpq":
        details |= {"ivf_lists": str(config.ivf_lists), "pq_bytes": str(config.pq_bytes)}
        details["refine"] = config.refine or "none"
    if config.part:
        details[PART] = str(IndexPart.parse(config.part))
    details |= vector_details
    return IndexSettings(
        config.kind, files, tuple(details.items()), encoder.name, encoder.fingerprint, encoder.dimension
    )
