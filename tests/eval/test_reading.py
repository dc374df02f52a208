"""benchmarks/reading.py: a hop is judged by its own annotated hop, not by any of the question's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.reading import measure


def hop(passage: str, answer: str, *, refused: bool = False) -> dict[str, Any]:
    return {"passage_ids": ["x", passage, "unread"], "sub_answer": answer, "refused": refused}


def counts_of(folder: Path, steps: list[dict[str, str]], hops: list[dict[str, Any]]) -> dict[str, int]:
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"settings": {"options": {"passages_per_hop": 2}}}))
    question = {"decomposition": steps, "answers": ["Oslo"], "supporting": ["p1", "p2"], "hops": 2}
    row = {"question": question, "answer": {"chains": [{"hops": hops}]}}
    (folder / "traces.jsonl").write_text(json.dumps(row) + "\n")
    counts: dict[str, int] = measure(folder)["counts"]
    return counts


STEPS = [{"answer": "Mara", "passage_id": "p1"}, {"answer": "Oslo, Norway", "passage_id": "p2"}]
RIGHT = [hop("p1", "Mara Velden"), hop("p2", "Oslo"), hop("p2", "Oslo")]


def test_a_hop_is_judged_by_the_annotated_hop_in_its_place(tmp_path: Path) -> None:
    assert counts_of(tmp_path / "right", STEPS, RIGHT) == {
        "hops": 3, "gold read": 2, "right where gold was read": 2, "refused where gold was read": 0,
        "refused where none was": 0,
    }  # fmt: skip
    others = [hop("p2", "Oslo"), hop("p2", "Mara"), hop("p1", "", refused=True)]
    assert counts_of(tmp_path / "others", STEPS, others) == {
        "hops": 3, "gold read": 1, "right where gold was read": 0, "refused where gold was read": 0,
        "refused where none was": 1,
    }  # fmt: skip


def test_without_annotated_passages_any_gold_counts(tmp_path: Path) -> None:
    counts = counts_of(tmp_path / "run", [{"answer": "Mara", "passage_id": ""}], RIGHT[1:])
    assert (counts["gold read"], counts["right where gold was read"]) == (2, 2)
