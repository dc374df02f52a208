"""Vectors: the encoder, building an index of them (FAISS or Lucene), and searching one."""
