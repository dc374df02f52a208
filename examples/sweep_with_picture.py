"""What do more tokens buy? A sweep over settings: table, Pareto set, fitted curve, best setting per budget.

    python examples/sweep_with_picture.py

All cells share one engine and what it has answered before: four chains cost two more than two. The best
setting per budget is chosen on the questions that it is reported on; sweep(dev=...) takes others, and is
honest. The same command again goes on where it was. About 2 minutes on two CPU cores for 10 questions
(QUESTIONS=100 for more).
"""

import os
from pathlib import Path

from corag import (
    ClosedBookConfig, CoRAGConfig, OneStepConfig, build_index, closed_book, corag, one_step, open_index,
    open_model, sweep, write_world,
)  # fmt: skip

FOLDER = Path("runs/examples/sweep")
CELLS = {
    "closed book": (closed_book, ClosedBookConfig(max_answer_tokens=16)),
    "2 passages": (one_step, OneStepConfig(k=2, max_answer_tokens=16)),
    "6 passages": (one_step, OneStepConfig(k=6, max_answer_tokens=16)),
} | {
    f"best of {chains}, {hops} hops": (
        corag, CoRAGConfig(preset="small_model", strategy="best_of_n", chains=chains, max_hops=hops),
    )
    for chains, hops in ((1, 1), (2, 2), (4, 2))
}  # fmt: skip


def main() -> None:
    """Sweep, and say where the picture is."""
    write_world(FOLDER / "world", passages=1000, train=20, dev=50, test=100)
    index_folder = build_index(FOLDER / "world/corpus.jsonl", out=FOLDER / "index")
    limit = int(os.environ.get("QUESTIONS", "10"))
    with open_model() as model, open_index(index_folder) as index:
        results = sweep(
            FOLDER / "world/test.jsonl", CELLS, model, index, out=FOLDER / "cells", limit=limit,
            budgets=[500, 1000, 2000, 4000, 8000],
        )  # fmt: skip
    print(results)
    print(results.to_pandas()[["cell", "f1", "recall", "tokens_per_question", "pareto"]])
    print("picture:", results.picture)


if __name__ == "__main__":
    main()
