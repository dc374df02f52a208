"""Group a corpus into long retrieval units, which longrag reads.

corag units data/world/corpus.jsonl --out units/world.jsonl --links mentions
corag run --questions test.jsonl --method longrag --retriever.index bm25 --longrag.units units/world.jsonl
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from eval.experiment import extensions  # noqa: F401 - datasets' corpus formats
from retrieval.long_units import UnitsConfig, build_units


def main(config: UnitsConfig) -> int:
    """Write the units and print their number and sizes as one line of JSON."""
    made = build_units(config, lambda line: print(line, file=sys.stderr))
    print(json.dumps(asdict(made)))
    return 0
