"""Group a corpus into long retrieval units, which longrag reads.

corag units data/world/corpus.jsonl --out units/world.jsonl --links mentions
corag run --questions test.jsonl --method longrag --retriever.index bm25 --longrag.units units/world.jsonl
"""

from __future__ import annotations

import sys
from dataclasses import asdict

from eval.experiment import extensions  # noqa: F401 - datasets' corpus formats
from retrieval.long_units import UnitsConfig, build_units
from scripts.ended import Ended


def main(config: UnitsConfig) -> Ended:
    """Write the units and say how many they are."""
    made = build_units(config, lambda line: print(line, file=sys.stderr))
    print(f"{config.out}: {made.units:,} units. Read them: --longrag.units {config.out}")
    return Ended(0, [asdict(made)])
