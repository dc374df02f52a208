"""How well the chains of finished runs read: python -m benchmarks.reading RUN ... (corag's, greedy).

Of the hops of all chains: how many had a gold passage among the passages read; of those, how many sub-answers
are one of the annotated answers; of the others, how many were refused; and how many hops were made for how
many were needed. An annotated answer is a hop's of the question's decomposition, or the question's own; it
counts if one of the two texts holds the other's whole words.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from corag.core.text import mentions


def measure(run: Path) -> dict[str, Any]:
    """Return counts over the hops of a run, and the hops made for each number of hops needed."""
    options = json.loads((run / "manifest.json").read_text())["settings"]["options"]
    counts: Counter[str] = Counter()
    made: dict[int, Counter[int]] = {}
    for line in (run / "traces.jsonl").read_text().splitlines():
        row = json.loads(line)
        question, answer = row["question"], row["answer"]
        if answer is None:
            counts["failed"] += 1
            continue
        gold = {hop["answer"] for hop in question["decomposition"]} | set(question["answers"])
        hops = answer["chains"][0]["hops"]
        needed = len(question["decomposition"]) or question["hops"]
        made.setdefault(needed, Counter())[len(hops)] += 1
        for hop in hops:
            read = set(hop["passage_ids"][: options["passages_per_hop"]])
            supported = bool(read & set(question["supporting"]))
            said = hop["sub_answer"]
            right = any(mentions([said], [each]) or mentions([each], [said]) for each in gold)
            counts["hops"] += 1
            counts["gold read"] += supported
            counts["right where gold was read"] += supported and right and not hop["refused"]
            counts["refused where gold was read"] += supported and hop["refused"]
            counts["refused where none was"] += not supported and hop["refused"]
    return {
        "counts": dict(counts),
        "hops needed: made": {n: dict(sorted(c.items())) for n, c in made.items()},
    }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, json.dumps(measure(Path(name))))
