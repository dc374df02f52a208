"""What datasets and methods add to the open tables of lower floors: corpus formats, ways to search.

The tables are filled by importing this module. So whoever reads a corpus or opens an index by names that a
user wrote imports it, in every process that does.
"""

import eval.datasets.corpora  # noqa: F401 - registers the formats of datasets
from ircot.method import BM25
from retrieval.config import Bm25, register_bm25

register_bm25("ircot", Bm25(*BM25))
