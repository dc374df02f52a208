"""Build an index over a corpus, resuming where an interrupted build stopped.

corag index data/world/corpus.jsonl --out indexes/world-bm25 --kind bm25
corag index data/world/corpus.jsonl --out indexes/world-dense --kind dense
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from eval.experiment import extensions  # noqa: F401 - datasets' corpus formats
from retrieval.build import build_index
from retrieval.config import IndexConfig


def main(config: IndexConfig) -> int:
    """Build the index and print its manifest as one line of JSON."""
    manifest = build_index(config, lambda line: print(line, file=sys.stderr))
    print(json.dumps(asdict(manifest)))
    return 0
