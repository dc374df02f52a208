"""benchmarks/reading.py: a hop is judged by its own annotated hop, not by any of the question's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.reading import measure
from corag.chains.chain import Hop
from corag.core.runs.rows import Row
from corag.core.types import Answer, GoldHop, Question
from tests.eval.runs import make_run, row


@dataclass(frozen=True)
class Chained(Answer):
    """An answer with its chain, as a run keeps it."""

    chains: tuple[dict[str, Any], ...] = ()


def hop(passage: str, answer: str, *, refused: bool = False) -> Hop:
    return Hop("Where?", answer, refused, ("x", passage, "unread"))


def counts_of(folder: Path, steps: list[dict[str, str]], hops: list[Hop]) -> dict[str, int]:
    decomposition = tuple(GoldHop("Where?", **step) for step in steps)
    question = Question("1", "Who?", ("Oslo",), ("p1", "p2"), hops=2, decomposition=decomposition)
    row = Row(question, Chained("Oslo", chains=({"hops": hops},)), (), {}, 0.1)
    make_run(folder, [row], {"options": {"passages_per_hop": 2}})
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


def test_on_an_index_with_other_ids_gold_goes_by_title_as_recall_does(tmp_path: Path) -> None:
    steps = tuple(GoldHop("Where?", **step) for step in STEPS)
    asked = Question("1", "Who?", ("Oslo",), ("title:About x",), hops=2, decomposition=steps)
    lacking = Question("2", "Who?", ("Oslo",), (), hops=2, decomposition=steps)
    chain = ({"hops": RIGHT},)
    rows = [
        replace(row(each, "Oslo", ["x", "p2"]), answer=Chained("Oslo", ("x", "p2"), chains=chain))
        for each in (asked, lacking)
    ]
    make_run(tmp_path, rows, {"options": {"passages_per_hop": 2}})
    counts = measure(tmp_path)["counts"]
    assert (counts["hops"], counts["gold read"], counts["hops without gold passages"]) == (3, 3, 3)
