"""IRCoT against one-step retrieval on a dataset: the table, the paired test, a report to click through.

    python examples/ircot_against_one_step.py

The questions are those of the embedded world, whose facts no model has seen; name a question file of your own
(HotpotQA, MuSiQue, ...) in their place. The same command again goes on where it was. About 3 minutes on two
CPU cores for 20 questions (QUESTIONS=100 for more). A model of 135 million parameters shows that all runs,
not what IRCoT can do: give open_model a better one.
"""

import os
from pathlib import Path

from corag import (
    IRCoTConfig, OneStepConfig, build_index, ircot, one_step, open_index, open_model, report, run,
    write_world,
)  # fmt: skip

FOLDER = Path("runs/examples/ircot")


def main() -> None:
    """Answer with both methods and compare."""
    write_world(FOLDER / "world", passages=1000, train=20, dev=20, test=100)
    index_folder = build_index(FOLDER / "world/corpus.jsonl", out=FOLDER / "index")
    shared_options = {  # both read the same number of passages and see the same worked examples
        "demonstrations": str(FOLDER / "world/demonstrations.txt"),
        "demonstration_count": 2, "max_answer_tokens": 16,
    }  # fmt: skip
    methods = {
        "one_step": (one_step, OneStepConfig(k=6, **shared_options)),
        "ircot": (ircot, IRCoTConfig(
            preset="paper", k_per_step=2, max_steps=3, paragraph_budget=6, max_thought_tokens=40,
            **shared_options,
        )),
    }  # fmt: skip
    with open_model() as model, open_index(index_folder) as index:
        results = run(
            FOLDER / "world/test.jsonl", methods, model, index, out=FOLDER,
            limit=int(os.environ.get("QUESTIONS", "20")), recall_at=6,
        )  # fmt: skip
        print(results.compare(baseline="one_step"))
        print("report:", report(results, FOLDER / "report.html", index))


if __name__ == "__main__":
    main()
