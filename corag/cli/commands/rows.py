"""Turn sampled chains into training rows: prompt and completion for every task, tokenised as decoding does.

    corag rows chains/world --retriever.index indexes/world-bm25 --out rows/world
    corag rows chains/world --rows.tasks no_chain --retriever.index indexes/world-bm25 --out rows/no-chain

Several folders of chains go into one set. Passages are read from the index by id; nothing is searched again
and no model is started.
"""

from __future__ import annotations

import asyncio

from corag.cli.result import CommandResult, print_report
from training.rows import MakeRowsConfig, make_rows


def main(config: MakeRowsConfig) -> CommandResult:
    """Write the rows and print the report."""
    return print_report(asyncio.run(make_rows(config)), "Rows", config.out)
