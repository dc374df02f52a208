"""Sample chains for training: many per question, each scored by the gold answer's likelihood, the best kept.

    corag sample --questions world/train.jsonl --retriever.index indexes/world-bm25 --out chains/world

The folder is a run like any other: one line per question with every candidate, appended as it is finished;
the same command again goes on where it was. 'corag rows' makes training rows of one or more such folders, so
shards (--shard 1/8) need no joining.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from corag.cli.result import CommandResult
from training.chains import describe, read_chains
from training.sample import SampleRunConfig, sample_dataset


def main(config: SampleRunConfig) -> CommandResult:
    """Sample for every question and print what came of it. The status is 1 if more failed than may."""
    asyncio.run(sample_dataset(config))
    summary = describe(read_chains([config.folder]))
    for line in summary.lines():
        print(line)
    print(f"Chains: {config.folder}. Rows of them: corag rows {config.folder} --index INDEX --out ROWS")
    status = int(summary.failed == summary.questions)
    record = asdict(summary) | {"folder": str(config.folder)}
    return CommandResult(status, [record], summary.failures, config.max_failed)
