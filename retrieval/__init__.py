"""Corpora, indexes and search.

A corpus becomes an index folder (:func:`build_index`): Lucene's BM25, or vectors in FAISS or Lucene. One or
more folders, or search servers, become a retriever (:func:`open_retriever`) that thousands of callers may
await at once: batched, fused, reranked and cached as its configuration says. Datasets and methods add corpus
formats and BM25 presets of their own from above (:func:`register_format`, :func:`register_bm25`).
"""

from core.lazy import lazy_exports

# Loaded when first asked for: opening an index brings FAISS, and Lucene a Java.
_EXPORTS = {
    "Bm25": "retrieval.config",
    "IndexConfig": "retrieval.config",
    "RetrieverConfig": "retrieval.config",
    "UnitsConfig": "retrieval.long_units",
    "build_index": "retrieval.build",
    "build_units": "retrieval.long_units",
    "open_retriever": "retrieval.open",
    "read_corpus": "retrieval.corpora",
    "register_bm25": "retrieval.config",
    "register_format": "retrieval.corpora",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
