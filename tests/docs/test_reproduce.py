"""The page on the papers' tables: its costs are recomputed, each of its guesses is answered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.paper_costs import (
    ANSWER,
    CELLS,
    HOP,
    TESTS,
    TRAINING,
    corag_hours,
    rows_of,
    searches,
    tokens_of,
)
from corag.chains.config import CoRAGConfig
from corag.chains.costs import StrategySteps

PAGE = (Path(__file__).parents[2] / "docs/guides/reproduce.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["corag", "ircot"])
def test_the_table_of_costs_is_recomputed(name: str) -> None:
    for row in rows_of(name):
        assert f"| {' | '.join(row)} |" in PAGE


def test_hours_at_the_head_are_the_sums_of_the_table() -> None:
    (one, eight), (one_with_sweep, eight_with_sweep) = corag_hours().values()
    assert f"| **sum** | **{one:.0f}** | **{eight:.0f}** | **{eight_with_sweep:.0f}** |" in PAGE
    head = PAGE.split("**What nobody can reproduce.**")[0]
    assert (
        f"{one:.0f} hours" in head
        and f"{eight:.0f} hours" in head
        and f"{eight_with_sweep:.0f} hours" in head
    )
    assert one_with_sweep > one


def test_searches_are_recomputed() -> None:
    assert f"Table 1 makes {searches() / 1e6:.1f} million" in PAGE


def test_tokens_are_those_that_the_authors_measured() -> None:
    six = CoRAGConfig(max_hops=6)
    assert tokens_of(StrategySteps.most(six)) == 6 * HOP + ANSWER == pytest.approx(9_855, rel=0.02)
    tree = StrategySteps.most(CELLS[3])
    assert (tree.hops, tree.scores) == (96, 48), "what the page says of the tree"
    assert f"{sum(TESTS.values()):,}" in PAGE and f"{sum(TRAINING.values()):,}" in PAGE


def test_every_guess_has_an_answer_and_its_source() -> None:
    rows = re.findall(r"^\| (G\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == [f"G{number}" for number in range(1, 19)]
    for name, _, answer, source in rows:
        assert source != "-" or "**open**" in answer, name
