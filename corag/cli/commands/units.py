"""Group a corpus into long retrieval units, which longrag reads.

corag units data/world/corpus.jsonl --out units/world.jsonl --links mentions
corag run --questions test.jsonl --method longrag --retriever.index bm25 --longrag.units units/world.jsonl
"""

from __future__ import annotations

import sys
from dataclasses import asdict

from corag.cli.result import CommandResult
from eval.experiment import extensions  # noqa: F401 - datasets' corpus formats
from retrieval.index.long_units import UnitsConfig, build_units


def main(config: UnitsConfig) -> CommandResult:
    """Write the units and say how many they are."""
    summary = build_units(config, lambda line: print(line, file=sys.stderr))
    print(f"{config.out}: {summary.units:,} units. Read them: longrag.units={config.out}")
    return CommandResult(0, [asdict(summary)])
