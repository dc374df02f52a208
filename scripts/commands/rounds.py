"""The whole of CoRAG's training: sample chains, make rows, fine-tune, decode; once or several times.

    corag rounds --config training/configs/world_rounds.yaml --questions world/train.jsonl \
        --retriever.index world-bm25 --out made

Every stage is a command of its own, whose options lie beside its result as YAML, and goes on where it was; so
does the same 'corag rounds'. With several rounds, chains are sampled by what the round before trained
(iterative rejection sampling, section 4.4 of the paper). With --learner, chains of the small --model train a
larger one (weak to strong).
"""

from __future__ import annotations

import json
from pathlib import Path

from eval.scoring.scorers import chosen_scorer
from eval.tables.printing import print_results
from eval.tables.results import table_of_new_runs
from training.rounds import RoundsConfig, perform_rounds


def main(config: RoundsConfig) -> int:
    """Perform every stage that is not finished.

    Print a line of JSON, and a table of the rounds if they are decoded.
    """
    test, root = config.held_out, Path(config.out)
    tests = test.load() if test.questions else []
    names = perform_rounds(config)
    print(json.dumps({"adapter": str(root / names[-1] / "adapter"), "rounds": names}))
    if not tests:
        return 0
    tested = {name: root / name / "test/corag" for name in ("untuned", *names)}
    return print_results(
        table_of_new_runs(tested, tests, chosen_scorer("auto", test.dataset), test.recall_at)
    )
