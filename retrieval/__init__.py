"""Corpora, indexes and search.

A corpus becomes an index folder (:func:`build_index`): Lucene's BM25, or vectors in FAISS. One or
more folders, or search servers, become a retriever (:func:`open_retriever`) that thousands of callers may
await at once: batched, fused, reranked and cached as its configuration says. Datasets and methods add corpus
formats and BM25 presets of their own from above (:func:`register_format`, :func:`register_bm25`).

``corpora`` reads records and ``documents`` files of one's own, as passages; ``index`` makes a folder of them,
with ``lucene`` or ``dense``; ``search`` opens folders and puts the stages together; ``http`` serves a search,
and reaches those, encoders and re-rankers that are served elsewhere.
"""

from corag.core.lazy import lazy_exports

# Loaded when first asked for: opening an index brings FAISS, and Lucene a Java.
__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "retrieval.config": "Bm25 IndexConfig RetrieverConfig register_bm25",
        "retrieval.index.build": "build_index",
        "retrieval.search.pipeline": "open_retriever",
        "retrieval.corpora.formats": "read_corpus register_format",
    },
)
