"""Corpora, indexes and search: Lucene, FAISS, fusion, reranking, HTTP."""
