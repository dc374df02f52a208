"""What datasets and methods add to the open tables of lower layers: corpus formats, ways to search.

The tables are filled by importing this module. So what reads a corpus or opens an index by names that a
user wrote imports it, in every process that does. ``corag`` exports the configurations from here: who has one
can use all names that the command line can.
"""

import eval.datasets.corpora  # noqa: F401 - registers the formats of datasets
from ircot.method import BM25
from retrieval.config import Bm25, IndexConfig, RetrieverConfig, register_bm25
from retrieval.corpora.formats import read_corpus

__all__ = ["IndexConfig", "RetrieverConfig", "read_corpus"]

register_bm25("ircot", Bm25(*BM25))
