"""CoRAG's training, in small: sample chains, make rows of the best ones, fine-tune, ask the new adapter.

    python examples/sample_and_fine_tune.py

A handful of questions and steps teaches nothing: it shows the way, in about 3 minutes on two CPU cores.
scripts/recipes/train_loop.sh takes it for real, and training/configs/ holds the settings for GPUs.
"""

import os
from pathlib import Path

from corag import (
    CoRAGConfig, RowsConfig, SampleConfig, ask, build_index, corag, load_questions, make_rows, open_index,
    open_model, sample_chains, train, write_world,
)  # fmt: skip

FOLDER = Path("runs/examples/training")
SMALL = CoRAGConfig(preset="small_model", max_hops=2)


def main() -> None:
    """Perform one round."""
    write_world(FOLDER / "world", passages=1000, train=20, dev=20, test=20)
    index_folder = build_index(FOLDER / "world/corpus.jsonl", out=FOLDER / "index")
    with open_index(index_folder) as index:
        with open_model() as model:  # closed before training, which wants the cores
            chains = sample_chains(
                FOLDER / "world/train.jsonl", model, index, out=FOLDER / "chains", corag=SMALL,
                config=SampleConfig(chains=2, max_hops=2), limit=int(os.environ.get("QUESTIONS", "8")),
            )  # fmt: skip
        print(chains)
        # Of every hop its sub-query, and of every chain the answer without passages: short rows, quick steps.
        tasks = RowsConfig(tasks=("sub_query", "draft"), ratio=1.0, validation=0.0)
        rows = make_rows(chains, index, out=FOLDER / "rows", config=tasks)
        print(rows)
        adapter = train(rows, out=FOLDER / "adapter", max_steps=4, batch_size=4)
        with open_model(adapter=adapter, backend="transformers") as tuned_model:
            print(ask(load_questions(FOLDER / "world/test.jsonl")[0], corag, tuned_model, index, SMALL))


if __name__ == "__main__":
    main()
