"""Lucene through Pyserini's jar: a Java inside this process, and BM25 on it."""
