"""Build an index over documents or a corpus, resuming where an interrupted build stopped.

corag index my_documents/ --out indexes/mine
corag index data/world/corpus.jsonl --out indexes/world-bm25 --kind bm25
corag index data/world/corpus.jsonl --out indexes/world-dense --kind dense
corag index data/world/corpus.jsonl --out indexes/world-bm25 --long_units units.jsonl     # for longrag, too
"""

from __future__ import annotations

from dataclasses import asdict

from corag.cli.result import CommandResult
from eval.experiment import extensions  # noqa: F401 - datasets' corpus formats
from eval.experiment.opening import quiet
from retrieval.config import IndexConfig
from retrieval.index.build import build_index


def main(config: IndexConfig) -> CommandResult:
    """Build the index and say how to search it."""
    with quiet(f"building the index {config.out}") as report:
        manifest = build_index(config, report)
    print(f"{config.out}: {manifest.passages:,} passages. Search it: corag ask --index {config.out}")
    return CommandResult(0, [asdict(manifest)])
