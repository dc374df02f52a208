"""The guide's plan for exact search is what its measured figures make of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.search import SearchPlan

GUIDE = Path(__file__).parents[2] / "docs/guides/clusters.md"


def rows() -> list[list[float]]:
    text = GUIDE.read_text(encoding="utf-8").partition("### Exact search of all of Wikipedia")[2]
    pattern = r"^\| (\d+) million x ([\d,]+) \| (\d) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) \| ([\d.,]+) \|$"
    return [[float(cell.replace(",", "")) for cell in row] for row in re.findall(pattern, text, re.MULTILINE)]


def test_the_plan_for_exact_search_is_recomputed() -> None:
    assert {(size, length, gpus) for size, length, gpus, *_ in rows()} == {
        (21, 768, 1), (21, 768, 8), (36, 1024, 1), (36, 1024, 8),
    }  # fmt: skip
    for size, length, gpus, gigabytes, gpu, cores, before in rows():
        plan = SearchPlan.estimate(size * 1e6, int(length), int(gpus))
        assert [gigabytes, gpu, cores, before] == pytest.approx(
            [plan.gigabytes, plan.gpu_queries_per_s, plan.cpu_queries_per_s, plan.cpu_before], rel=0.03
        )
