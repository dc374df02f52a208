"""Build an index folder from a corpus."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from corag.core.errors import ConfigError, DataError
from corag.core.files import build_folder, file_digest
from corag.core.folder_lock import lock_folder, refuse_if_locked
from corag.core.installation import require
from corag.core.machine import count_threads
from corag.core.runs.folder import ANOTHER_OUT
from corag.core.types import Passage
from retrieval.config import GRAPHS, MAIN, IndexConfig
from retrieval.corpora.files import expand_corpus
from retrieval.corpora.formats import (
    AUTO,
    DOCUMENTS,
    check_columns,
    check_packages,
    detect_format,
    read_corpus,
    refuse_other_records,
)
from retrieval.corpora.records import Columns
from retrieval.corpora.sifting import CorpusReport, sift
from retrieval.dense.build import INDEX
from retrieval.dense.encoder import TextEncoder
from retrieval.dense.faiss_build import count_ivf_lists, training_rows
from retrieval.dense.fitting import fitting_words, split_to_fit
from retrieval.dense.open_encoder import load_encoder, packages_of
from retrieval.dense.prompts import AUTO as OWN_PROMPT
from retrieval.documents.passages import Cutting
from retrieval.documents.reading import (
    FILES,
    READING,
    DocumentCorpus,
    EarlierIndex,
    load_file_hashes,
    write_reports,
)
from retrieval.index.aliases import Aliases
from retrieval.index.given_vectors import IndexParts, VectorFiles
from retrieval.index.manifest import (
    INDEX_FILE,
    LANGUAGE,
    PART,
    TRAINED,
    TRAINING,
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
    refuse_lost_passages,
    rename_into_place,
)
from retrieval.index.store import PassageStore, storing
from retrieval.index.vectors import CorpusVectors, EncodedVectors, store_passages
from retrieval.lucene.bm25 import build_lucene
from retrieval.lucene.jar import find_jar
from retrieval.lucene.java import find_java
from retrieval.lucene.languages import ENGLISH, ScriptCounter


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
    refuse_if_locked(folder, beside=True, advice=ANOTHER_OUT)  # told now, and not after an encoder was opened
    with build_folder(folder, "the index ", building_folder(folder)):
        return _build(config, report)


def _build(config: IndexConfig, report: Callable[[str], None]) -> IndexManifest:
    _check_installed(config)
    config = replace(config, corpus=expand_corpus(config.corpus, report))
    check_packages(config.corpus)
    given_format = config.format
    config = replace(config, format=detect_format(config.corpus, given_format))
    if given_format == AUTO and config.format != DOCUMENTS and not config.columns:
        refuse_other_records(config.corpus)
    _refuse_cutting(config)
    if config.columns:
        check_columns(config.format)
    encoder, prompt = None, ""
    if config.kind == "dense":
        encoder = load_encoder(config.encoder, config.max_passage_tokens, config.placement)
        config = _with_prompts(config, encoder, report)
        prompt = config.passage_prefix
    documents = None
    if config.format == DOCUMENTS:
        cutting, fit = config.cutting, None
        if encoder and config.fits_encoder:
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
        return _report_existing(folder, existing, report)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), config.out)
    with lock_folder(folder, work="corag index", beside=True, advice=ANOTHER_OUT):
        if not config.overwrite and (existing := find_index(folder, settings)):  # built by another meanwhile
            return _report_existing(folder, existing, report)
        if documents and not config.overwrite:
            _refuse_unreadable(documents, folder)
        place = begin_build(folder, settings, overwrite=config.overwrite, updates=documents is not None)
        # Complete, if an interruption came just before it was renamed.
        manifest = find_index(place.building, settings)
        manifest = manifest or _fill(config, settings, place, documents, encoder, vectors, report)
        rename_into_place(place)
    return manifest


def _report_existing(folder: Path, manifest: IndexManifest, report: Callable[[str], None]) -> IndexManifest:
    report(f"the index '{folder}' is already there ({manifest.passages:,} passages): nothing to do.")
    return manifest


def _fill(
    config: IndexConfig,
    settings: IndexSettings,
    place: BuildPlace,
    documents: DocumentCorpus | None,
    encoder: TextEncoder | None,
    vectors: CorpusVectors | None,
    report: Callable[[str], None],
) -> IndexManifest:
    """Build an index beside its place."""
    corpus, folder = CorpusReport(), place.building
    earlier = EarlierIndex.open(place.folder) if documents and place.earlier else None
    if documents:
        if earlier:
            report(f"{earlier.changes(settings.corpus)}.")
        document_passages = documents.passages(corpus, earlier, report)
        what = ", ".join(config.corpus)
        passages = sift(document_passages, corpus, what, strict=config.strict)
    else:
        passages = _read(config, corpus)
    choice = None
    if config.part or config.train_only:
        choice = _choose_rows(config, encoder)
        config = replace(config, ivf_lists=choice.lists)
        report(choice.description)
        passages = islice(passages, choice.rows.start, choice.rows.stop, choice.rows.step)
    scripts = ScriptCounter()
    passages = scripts.watch(passages)
    # The texts go to disk on their way, so that no index has to hold them in memory.
    passages = storing(passages, folder)
    before_encoding, vector_notes = list[str](), list[str]()
    if vectors is None:
        threads = config.threads or count_threads()
        build_lucene(passages, folder, threads, report, config.language)
        misfit = scripts.analyzer_note(config.language)
    else:
        store = store_passages(passages, folder, report)
        total = choice.corpus.passages if choice else len(store)
        rows = choice.rows if choice else range(total)
        vectors = replace(vectors, config=config)
        before_encoding, vector_notes = vectors.write(store, rows, total, place, report)
        store.close()
        misfit = scripts.encoder_note() if config.encoder == "default" else ""
    if documents and place.earlier:
        refuse_lost_passages(place.folder, place.earlier, corpus.passages)
    notes = choice.notes if choice else corpus.sentences()
    notes += [note for note in (*before_encoding, *vector_notes, misfit) if note]
    if documents:
        write_reports(folder, corpus.files)
        notes += documents.notes(corpus)
    for note in notes:
        if note not in before_encoding:  # those are reported already
            report(note)
    if earlier:
        earlier.store.close()
    if not config.train_only:  # that has no passages
        _save_aliases(folder, choice.corpus if choice else corpus, choice.rows if choice else None)
    return write_manifest(folder, settings, len(choice.rows) if choice else corpus.passages, notes)


def _check_installed(config: IndexConfig) -> None:
    """Raise a sentence if something is missing that is wanted only when all passages have been read."""
    if config.kind == "dense":
        require("an index with vectors", *packages_of(config.encoder), "faiss")
    else:
        find_java()
        find_jar()


def _read(config: IndexConfig, corpus: CorpusReport) -> Iterator[Passage]:
    """Stream the passages of a corpus that is no documents."""
    columns = Columns.parse(config.columns)
    return read_corpus(
        config.corpus,
        config.format,
        corpus,
        columns=columns,
        strict=config.strict,
        keep_all=bool(config.vectors),
    )


def _open_vectors(config: IndexConfig, encoder: TextEncoder) -> CorpusVectors:
    """Return the vectors of an index: encoded now, made elsewhere, or those of its parts."""
    if not (config.vectors or config.merge):
        return EncodedVectors(config, encoder)
    if config.format == DOCUMENTS:
        option = "vectors" if config.vectors else "merge"
        raise ConfigError(
            f"{option} is for passages as they stand, whose vectors are in their order, but the corpus is "
            f"read as documents, which are cut into passages: leave out '{option}', or give passages."
        )
    return VectorFiles.open(config, encoder) if config.vectors else IndexParts.open(config)


@dataclass(frozen=True)
class ChosenRows:
    """Which passages of a corpus are a part's, or are trained on: those spread evenly over it.

    Attributes:
        rows: their numbers.
        lists: of an "ivfpq" index over all of the corpus.
        corpus: what became of all of its records.
        description: in a sentence, which passages these are.
    """

    rows: range
    lists: int
    corpus: CorpusReport
    description: str

    @property
    def notes(self) -> list[str]:
        """What the index's manifest says of its corpus: the counts are those of the whole."""
        counts, *others = self.corpus.sentences()
        return [self.description, f"Of the whole corpus: {counts}", *others]


def _choose_rows(config: IndexConfig, encoder: TextEncoder | None) -> ChosenRows:
    """Choose the passages of a part or a training.

    The corpus is read once more for this, since nobody knows before how many passages are kept.
    """
    assert encoder is not None
    corpus = CorpusReport()
    total = sum(1 for _ in _read(config, corpus))
    if config.part:
        if not (rows := IndexPart.parse(config.part).rows(total)):
            raise ConfigError(f"part {config.part} of {total:,} passages would be empty: make fewer parts.")
        range_text = f"numbers {rows.start + 1:,} to {rows.stop:,} of the corpus's {total:,}"
        return ChosenRows(
            rows, config.ivf_lists, corpus, f"Part {config.part}: {len(rows):,} passages, {range_text}."
        )
    lists = count_ivf_lists(config, total, encoder.dimension)
    rows = range(0, total, max(1, total // training_rows(lists)))
    return ChosenRows(
        rows, lists, corpus, f"Training on {len(rows):,} passages, spread over the corpus's {total:,}."
    )


def _save_aliases(folder: Path, corpus: CorpusReport, part: range | None) -> None:
    """Write which ids were dropped as repeats of a passage that is in the index, or in this part of it."""
    rows = part or range(corpus.passages)
    ids = {}
    if same_as := [(name, rows.index(row)) for name, row in corpus.same_as if row in rows]:
        store = PassageStore(folder)
        ids = {name: store.read_id(row) for name, row in same_as}
        store.close()
    Aliases(ids, numbered=corpus.shared_ids > 0).save(folder)


def _refuse_cutting(config: IndexConfig) -> None:
    """Raise :class:`ConfigError` if passages that are taken as they stand are to be cut."""
    if config.format != DOCUMENTS and config.html == MAIN:
        raise ConfigError(
            f"html is for documents, but the corpus is read as '{config.format}', whose passages are taken "
            "as they stand: leave it out."
        )
    if config.format != DOCUMENTS and (config.cutting != Cutting() or config.fits_encoder):
        raise ConfigError(
            "passage_words and passage_overlap are for documents, but the corpus is read as "
            f"'{config.format}', whose passages are taken as they stand: leave both out."
        )


def _with_prompts(config: IndexConfig, encoder: TextEncoder, report: Callable[[str], None]) -> IndexConfig:
    """Return the configuration with the encoder's own prompts in place of "auto", and say which they are."""
    query = encoder.resolve_prompt(config.query_prefix, "query")
    document = encoder.resolve_prompt(config.passage_prefix, "document")
    uses = [
        f"{text!r} before every {name}"
        for text, option, name in (
            (query, config.query_prefix, "query"),
            (document, config.passage_prefix, "passage"),
        )
        if text and option == OWN_PROMPT
    ]
    if uses:
        brings = (
            "prompts"
            if encoder.missing_prompts() is None
            else "none, but its authors trained it with prompts"
        )
        report(
            f"the encoder '{encoder.name}' brings {brings}, which are used: {' and '.join(uses)} "
            "(query_prefix='' passage_prefix='' for none)."
        )
    return replace(config, query_prefix=query, passage_prefix=document)


def _refuse_unreadable(documents: DocumentCorpus, folder: Path) -> None:
    """Raise :class:`DataError` if an index would be taken apart for documents none of which can be read."""
    whole = all((folder / name).is_file() for name in (INDEX_FILE, FILES))
    if whole and not documents.has_passages(load_file_hashes(folder)):
        raise DataError(
            f"none of the documents can be read, so the index '{folder}' stays as it was: it is searched as "
            "before. Check the documents, or choose another `out`."
        )


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
        details["columns"] = str(Columns.parse(config.columns))
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
        if not config.train_only:
            details["refine"] = config.refine or "none"
        if config.trained:
            details[TRAINED] = file_digest(Path(config.trained) / INDEX)
    if config.train_only:
        details[TRAINING] = "only"
    if config.part:
        details[PART] = str(IndexPart.parse(config.part))
    details |= vector_details
    return IndexSettings(
        config.kind, files, tuple(details.items()), encoder.name, encoder.fingerprint, encoder.dimension
    )
