"""Turn sampled chains into preferences: two next sub-queries at the same place, the better one chosen.

    corag pairs chains/world --out pairs/world
    corag pairs chains/world --pairs.by chain --pairs.margin 0.5 --out pairs/world-ends

'corag sample' keeps every candidate with its score after each hop, so nothing is searched or asked again.
'accelerate launch training/experimental/dpo.py' trains on the pairs.
"""

from __future__ import annotations

from corag.cli.result import CommandResult, print_report
from training.experimental.pairs import MakePairsConfig, make_pairs


def main(config: MakePairsConfig) -> CommandResult:
    """Write the pairs and print the report."""
    return print_report(make_pairs(config), "Pairs", config.out)
