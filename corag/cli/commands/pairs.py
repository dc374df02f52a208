"""Pair the queries of gold and kept chains with passages, right and wrong: what a retriever learns from.

    corag pairs --questions train.json --dataset musique --retriever.index indexes/mine \
        --retriever.links titles --out pairs/mine
    corag pairs chains/mine --retriever.index indexes/mine --out pairs/sampled

Right are gold passages, wrong ones come from the index's search. 'corag train encoder' and 'corag train
reranker' learn from them.
"""

from __future__ import annotations

import asyncio

from corag.cli.result import CommandResult, print_report
from training.retriever_pairs import MakeRetrieverPairsConfig, make_retriever_pairs


def main(config: MakeRetrieverPairsConfig) -> CommandResult:
    """Write the pairs and print the report."""
    return print_report(asyncio.run(make_retriever_pairs(config)), "Pairs", config.out)
