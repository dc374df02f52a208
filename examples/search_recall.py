"""Compare two ways of searching by recall, without a model: as it is, and following links between titles.

    python examples/search_recall.py                                   # questions about an invented world
    python examples/search_recall.py QUESTIONS DATASET INDEX [INDEX]   # yours; several indexes are fused

Recall@k is the share of a question's gold passages among the first k hits of one search with its text; in
brackets, its 95% bootstrap interval over questions. About 1 minute on two CPU cores.
"""

import sys
from pathlib import Path

from corag import build_index, load_questions, open_index, write_world
from eval.statistics import bootstrap_mean

FOLDER = Path("runs/examples/search_recall")
DEPTHS = (2, 5, 10)


def main() -> None:
    """Print a line for each of them."""
    if len(sys.argv) > 3:
        questions, indexes = load_questions(sys.argv[1], sys.argv[2]), sys.argv[3:]
    else:
        write_world(FOLDER / "world")
        indexes = [build_index(FOLDER / "world/corpus.jsonl", out=FOLDER / "bm25")]
        questions = load_questions(FOLDER / "world/test.jsonl")
    print(f"{len(questions)} questions; recall at {', '.join(map(str, DEPTHS))}:")
    for links in ("none", "titles"):
        with open_index(*indexes, links=links) as index:
            hits = [[hit.passage.id for hit in index.search(each.text, max(DEPTHS))] for each in questions]
        figures = []
        for k in DEPTHS:
            shares = [
                len({*ids[:k]} & {*each.supporting}) / len(each.supporting)
                for ids, each in zip(hits, questions, strict=True)
            ]
            if recall := bootstrap_mean(shares):
                figures.append(f"{recall.mean:.3f} [{recall.low:.3f}, {recall.high:.3f}]")
        print(f"links {links:6}", *figures)


if __name__ == "__main__":
    main()
