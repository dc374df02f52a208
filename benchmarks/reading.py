"""How well the chains of finished runs read: python -m benchmarks.reading RUN ... (corag's, greedy).

Of the hops of all chains: how many had their gold passage among the passages read, how many of those gave
its answer and how many were refused; how many of the others were refused; and how many hops were made for
how many were needed. A hop's gold is that of the annotated hop in the same place; the last one's answer may
also be written as the question's. A hop that is made beyond those has none. Where the dataset does not
annotate hops, or the index has other ids than it, any gold passage and any answer of the question counts,
as for its recall; of a question without recall no hop does. An answer is right if one of the two texts holds
the other's whole words. (A chain that takes the hops in another order counts as wrong.)
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from corag.chains.chain import Hop
from corag.core.language.text import mentions
from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import Manifest
from corag.core.types import Question
from eval.datasets.corpora import index_aliases
from eval.scoring.gold import find_gold


def measure(run: Path) -> dict[str, Any]:
    """Return counts over the hops of a run, and the hops made for each number of hops needed."""
    manifest = Manifest.read(run)
    read_count, aliases = manifest.options["passages_per_hop"], index_aliases(manifest.last)
    counts: Counter[str] = Counter()
    hops_made: dict[int, Counter[int]] = {}
    for row in read_rows(run).values():
        question = row.question
        if row.answer is None:
            counts["failed"] += 1
            continue
        hops = [Hop.from_json(each) for each in row.further["chains"][0]["hops"]]
        hops_needed = len(question.decomposition) or question.hops
        hops_made.setdefault(hops_needed, Counter())[len(hops)] += 1
        found = find_gold(row, aliases)
        if found is None:
            counts["hops without gold passages"] += len(hops)
            continue
        for index, hop in enumerate(hops):
            passages, answers = gold_of(question, index, found.places)
            read = hop.passage_ids[:read_count]
            has_gold = any(not passages.isdisjoint(found.identities(each)) for each in read)
            right = any(
                mentions([hop.sub_answer], [each]) or mentions([each], [hop.sub_answer]) for each in answers
            )
            counts["hops"] += 1
            counts["gold read"] += has_gold
            counts["right where gold was read"] += has_gold and right and not hop.refused
            counts["refused where gold was read"] += has_gold and hop.refused
            counts["refused where none was"] += not has_gold and hop.refused
    return {
        "counts": dict(counts),
        "hops needed: made": {n: dict(sorted(c.items())) for n, c in hops_made.items()},
    }


def gold_of(question: Question, index: int, gold: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the gold passages and the answers of a chain's hop, counted from 0; ``gold``: the question's."""
    steps = question.decomposition
    if not steps or not all(step.passage_id in gold and step.answer for step in steps):
        return set(gold), {step.answer for step in steps} | set(question.answers)
    if index >= len(steps):
        return set(), set()
    further = set(question.answers) if index == len(steps) - 1 else set()
    return {steps[index].passage_id}, {steps[index].answer} | further


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, json.dumps(measure(Path(name))))
