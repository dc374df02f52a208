"""Lucene BM25 through Pyserini's jar."""
