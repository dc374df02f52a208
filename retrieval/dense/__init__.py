"""Vectors: the encoder and its prompts, files of vectors (``build``, ``faiss_build``), and searching them."""
