"""The embedded world's questions in the shape of corag/multihopqa, which rehearsals read in its place.

    python scripts/recipes/as_multihopqa.py WORLD/train.jsonl OUT.jsonl

Annotated hops stand for the authors' chains; there are no ``context_doc_ids``, which are rows of another
corpus.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(questions: str, out: str) -> None:
    """Write the file."""
    lines = []
    for record in map(json.loads, Path(questions).read_text(encoding="utf-8").splitlines()):
        hops = record["decomposition"]
        row = {
            "query": record["question"],
            "query_id": record["id"],
            "answers": record["answers"],
            "subqueries": [hop["question"] for hop in hops],
            "subanswers": [hop["answer"] for hop in hops],
            "predictions": record["answers"][0],
            "context_doc_ids": [],
        }
        lines.append(json.dumps(row))
    Path(out).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
