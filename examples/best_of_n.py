"""CoRAG: sample several chains of sub-questions, keep the one that looks surest, and see all of them drawn.

    python examples/best_of_n.py

The model has the adapter that comes with the package, trained for CoRAG on another world with the options of
the preset "small_model". Every chain is scored by how likely it makes the sentence "No relevant
information found": lower is better. About 2 minutes on two CPU cores (CHAINS=8 for more chains).
"""

import os
from pathlib import Path

from corag import CoRAGConfig, ask, build_index, corag, load_questions, open_index, open_model, write_world

FOLDER = Path("runs/examples/best_of_n")


def main() -> None:
    """Answer a question that needs two or more facts."""
    write_world(FOLDER / "world", passages=1000, train=20, dev=20, test=20)
    index_folder = build_index(FOLDER / "world/corpus.jsonl", out=FOLDER / "index")
    question = load_questions(FOLDER / "world/test.jsonl")[0]
    config = CoRAGConfig(
        preset="small_model", strategy="best_of_n", chains=int(os.environ.get("CHAINS", "4")), max_hops=3
    )
    with open_model("default", adapter="default") as model, open_index(index_folder) as index:
        answer = ask(question, corag, model, index, config)
    print(answer)
    print("gold     ", " / ".join(question.answers))
    for number, chain in enumerate(answer.metadata["chains"], 1):
        mark = "<- kept" if number - 1 == answer.metadata["chosen"] else ""
        print(f"chain {number}: score {chain['score']:.2f}, {len(chain['hops'])} hops {mark}")


if __name__ == "__main__":
    main()
