"""Turn sampled chains into training rows: prompt and completion for every task, tokenised as decoding does.

    corag rows chains/world --retriever.index indexes/world-bm25 --out rows/world
    corag rows chains/world --rows.tasks no_chain --retriever.index indexes/world-bm25 --out rows/no-chain

Several folders of chains go into one set. Passages are read from the index by id; nothing is searched again
and no model is started.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

from training.rows import MakeRowsConfig, make_rows


def main(config: MakeRowsConfig) -> int:
    """Write the rows, print the report, return 0."""
    report = asyncio.run(make_rows(config))
    for line in report.lines():
        print(line)
    print(json.dumps({"folder": config.out, **{k: v for k, v in asdict(report).items() if k != "settings"}}))
    return 0
