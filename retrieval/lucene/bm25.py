"""Lucene BM25 through Pyserini's jar: build an index that Pyserini opens too, and search it in batches.

A document has three indexed fields: ``contents`` (title, newline, text: what Pyserini searches), ``title``
and ``text`` (searched apart, scores added, as IRCoT's Elasticsearch did). The raw JSON is stored, as
Pyserini's users expect. An index that ``corag index`` built also has a passage store beside Lucene's files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from corag.core.errors import BackendError, DataError, IndexMismatchError, SearchFailedError, reason
from corag.core.pace import pace
from corag.core.system.machine import count_threads
from corag.core.types import Hit, Passage
from retrieval.config import Bm25
from retrieval.corpora.passages import passage_from_record
from retrieval.index.store import PassageStore, has_store
from retrieval.lucene.java import (
    java_class,
    java_error,
    java_path,
    open_lucene,
    require_passages,
    restore_fault_handlers,
    to_java_list,
    to_json,
    writing_lucene,
)
from retrieval.lucene.languages import ENGLISH, open_analyzer, prepare
from retrieval.search.stage import HitsOrError

_INDEX_CHUNK = 2_000  # documents that cross over to Java in one call
_CLAUSES = 1 << 16  # of a query: a term in each field that is searched; Lucene's own limit is 1,024
_SEARCH_CHUNK = 512  # Anserini starts its threads afresh for every batch, so small ones waste them


def is_lucene_index(folder: Path) -> bool:
    """Whether a folder holds a committed Lucene index."""
    return folder.is_dir() and any(folder.glob("segments_*"))


def build_lucene(
    passages: Iterable[Passage],
    folder: Path,
    threads: int,
    report: Callable[[str], None],
    language: str = ENGLISH,
) -> None:
    """Index passages into a folder, replacing a Lucene index that is there.

    ``language``: a code of :data:`retrieval.lucene.languages.LANGUAGES`, by whose analyser.

    Raises :class:`DataError` if Lucene cannot write them all.
    """
    places = ["-index", java_path(folder), "-collection", "JsonCollection", "-input", ""]
    options = ["-threads", str(threads), "-storeRaw", "-fields", "title", "text"]
    if language != ENGLISH:
        open_analyzer(language)
        options += ["-language", language]
    with writing_lucene(folder):
        indexer = java_class("io.anserini.index.SimpleIndexer")([*places, *options])
        stream, count, start = iter(passages), 0, time.monotonic()
        try:
            while chunk := [_document(passage, language) for passage in islice(stream, _INDEX_CHUNK)]:
                restore_fault_handlers()  # reading passages may have loaded any library
                added_rows = indexer.addRawDocuments(chunk)
                if added_rows != len(chunk):
                    raise DataError(
                        f"Lucene refused {len(chunk) - added_rows} of the passages {count:,} to "
                        f"{count + len(chunk):,}: is there space left for '{folder}'?"
                    )
                if count // 100_000 < (count + added_rows) // 100_000:
                    speed = pace(count + added_rows, time.monotonic() - start)
                    report(f"{count + added_rows:,} passages indexed, {speed}")
                count += added_rows
        except BaseException:
            indexer.close(False)  # it is never searched, and merging may take minutes
            raise
        indexer.close(True)  # merges into one segment, which searches fastest
    require_passages(folder, count)
    (folder / "write.lock").unlink(missing_ok=True)


def _document(passage: Passage, language: str) -> str:
    # title and text twice over: in contents for Pyserini's users, and apart for searches over two fields.
    texts = {"contents": passage.contents, "title": passage.title, "text": passage.text}
    fields = {"id": passage.id} | {name: prepare(text, language) for name, text in texts.items()}
    return orjson.dumps(fields | passage.place).decode()


class LuceneSearcher:
    """A ``BatchSearcher`` over a Lucene index: ours, or Pyserini's (``-storeRaw``).

    Lucene searches a chunk of queries with all threads while another thread decodes the hits of the chunk
    before. The hits of a chunk cross over from Java as one JSON string: a call per document would cost more
    than the search. If there is a passage store, only ids and scores cross over, which halves the time; else
    the stored documents do.

    ``language``: the one that the index was analysed by.
    """

    def __init__(self, folder: Path, bm25: Bm25, threads: int = 0, language: str = ENGLISH) -> None:
        self._folder = folder
        self._threads = threads or count_threads()
        self._fields = None if bm25.fields == ("contents",) else _float_map(bm25.fields)
        try:
            self._searcher = java_class("io.anserini.search.SimpleSearcher")(java_path(folder))
        except java_error() as error:
            raise IndexMismatchError(f"Lucene cannot open the index '{folder}': {reason(error)}") from None
        self._searcher.set_bm25(float(bm25.k1), float(bm25.b))
        self._language = language
        if language != ENGLISH:
            # Anserini's set_language knows fewer than its indexer, and takes English for the rest.
            self._searcher.set_analyzer(open_analyzer(language))
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(_CLAUSES)
        self._store = PassageStore(folder) if has_store(folder) else None
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="decode")
        self._closed = False
        self._refuse_unusable(bm25)

    @property
    def size(self) -> int:
        """Number of passages in the index."""
        return int(self._searcher.get_total_num_docs())

    def search(self, queries: Sequence[str], k: int) -> Sequence[HitsOrError]:
        """Return for each query up to k hits, best first; equal scores are ordered by id, as in Pyserini."""
        queries = [prepare(query, self._language) for query in queries]
        restore_fault_handlers()
        chunks = [queries[start : start + _SEARCH_CHUNK] for start in range(0, len(queries), _SEARCH_CHUNK)]
        futures = [
            self._decoder.submit(self._decode, self._search_chunk(chunk, k), chunk) for chunk in chunks
        ]
        return [outcome for future in futures for outcome in future.result()]

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        if self._store is not None:
            return self._store.passages(ids)
        try:
            documents = orjson.loads(to_json(self._searcher.batch_get_docs(to_java_list(ids), self._threads)))
        except java_error() as error:
            raise self._lost_index_error(error) from None
        return {identifier: self._passage(identifier, document) for identifier, document in documents.items()}

    def close(self) -> None:
        """Free the index. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._decoder.shutdown()
            self._searcher.close()
            if self._store is not None:
                self._store.close()

    def _search_chunk(self, queries: Sequence[str], k: int) -> bytes:
        """Return the hits of each query, for a refused one the reason as text: JSON, by number."""
        if len(queries) > 1:
            numbers = to_java_list(map(str, range(len(queries))))  # equal ids would collapse into one result
            arguments = (to_java_list(queries), numbers, k, self._threads)
            try:
                if self._fields is None:
                    return self._to_json(self._searcher.batch_search(*arguments))
                return self._to_json(self._searcher.batch_search_fields(*arguments, self._fields))
            except java_error():
                pass  # Anserini gives up on a batch if one of its queries fails: find out which
        singly = ((number, self._search_one(query, k)) for number, query in enumerate(queries))
        return b"{" + b",".join(b'"%d":%b' % (number, hits) for number, hits in singly) + b"}"

    def _search_one(self, query: str, k: int) -> bytes:
        """Return the hits of one query as JSON, or the reason why Lucene refuses it."""
        try:
            if self._fields is None:
                return self._to_json(self._searcher.search(query, k))
            return self._to_json(self._searcher.search_fields(query, self._fields, k))
        except java_error() as error:
            if any(name in error.classname for name in ("AlreadyClosed", "IOException")):
                raise self._lost_index_error(error) from None
            return orjson.dumps(reason(error))

    def _to_json(self, hits: Any) -> bytes:
        return to_json(hits, documents=self._store is None)

    def _decode(self, results: bytes, queries: Sequence[str]) -> list[HitsOrError]:
        by_number = orjson.loads(results)
        passages = self._load_passages(hits for hits in by_number.values() if isinstance(hits, list))
        outcomes: list[HitsOrError] = []
        for number, query in enumerate(queries):
            hits = by_number[str(number)]
            if isinstance(hits, str):
                words = f"'{query[:80]}' ({len(query.split()):,} words)"
                outcomes.append(SearchFailedError(f"Lucene refused the query {words}: {hits}."))
            else:
                outcomes.append(tuple(Hit(passages[hit["docid"]], hit["score"]) for hit in hits))
        return outcomes

    def _load_passages(self, results: Iterable[Sequence[dict[str, Any]]]) -> dict[str, Passage]:
        if self._store is not None:
            return self._store.passages(list({hit["docid"]: None for hits in results for hit in hits}))
        documents = {hit["docid"]: hit["lucene_document"] for hits in results for hit in hits}
        return {identifier: self._passage(identifier, document) for identifier, document in documents.items()}

    def _passage(self, identifier: str, document: dict[str, Any]) -> Passage:
        raw = next(field["fieldsData"] for field in document["fields"] if field["name"] == "raw")
        passage = passage_from_record(orjson.loads(raw), f"index '{self._folder}', document '{identifier}'")
        return replace(passage, id=identifier)

    def _refuse_unusable(self, bm25: Bm25) -> None:
        fields = _indexed_fields(self._folder)
        if missing := [field for field in bm25.fields if field not in fields]:
            raise IndexMismatchError(
                f"the Lucene index '{self._folder}' has the fields {', '.join(fields)}, but not "
                f"{', '.join(missing)}: build it with `corag index`, or search it with bm25: pyserini."
            )
        first = self._searcher.doc(0)
        if first is None or first.get("raw") is None:
            raise IndexMismatchError(
                f"the Lucene index '{self._folder}' does not store its documents: build it with Pyserini's "
                "--storeRaw."
            )

    def _lost_index_error(self, error: Exception) -> BackendError:
        return BackendError(f"the Lucene index '{self._folder}' can no longer be searched: {reason(error)}")


def _indexed_fields(folder: Path) -> list[str]:
    from jnius import cast

    reader = open_lucene(folder)
    fields = java_class("org.apache.lucene.index.FieldInfos").getIndexedFields(
        cast("org.apache.lucene.index.IndexReader", reader)
    )
    names = sorted(fields.toArray())
    reader.close()
    return names


def _float_map(names: Iterable[str]) -> Any:
    result = java_class("java.util.HashMap")()
    for name in names:
        result.put(name, java_class("java.lang.Float")(1.0))
    return result
