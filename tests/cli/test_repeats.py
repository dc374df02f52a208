"""Runs that are repeated with other seeds: each a run of its own, with their mean and how far they differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corag.cli.main import main
from eval.statistics.intervals import bootstrap_mean

# Greedy, and another answer each time that a question is asked: as an engine whose rounding depends on its
# batch, only more so. Every third answer is wrong.
MODEL = """
asked = {}

def answer(prompt):
    asked[prompt] = asked.get(prompt, len(asked)) + 1
    return "Bergen" if asked[prompt] % 3 == 0 else "Oslo"
"""
N = 30


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Questions, a method without an index, and the model."""
    file = tmp_path / "questions.jsonl"
    lines = [{"id": f"q{n}", "question": f"Where was child {n} born?", "answers": ["Oslo"]} for n in range(N)]
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    (tmp_path / "model.py").write_text(MODEL)
    given = [
        "--questions",
        file,
        "--method",
        "closed_book",
        "--model.name",
        f"{tmp_path / 'model.py'}:answer",
    ]
    return [*map(str, given), "--out", str(tmp_path / "runs")]


def record_of(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[str, dict[str, Any]]:
    """What a command prints, and its figures."""
    assert main([*argv, "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    return "\n".join(lines), json.loads(last)


def test_a_repeated_run_says_how_far_equal_runs_differ(options, tmp_path, capsys):
    assert main(["run", *options]) == 0
    first = (tmp_path / "runs/closed_book/traces.jsonl").read_bytes()
    capsys.readouterr()
    printed, record = record_of(capsys, "run", *options, "--repeats", "3")
    assert sorted(each.name for each in (tmp_path / "runs").glob("closed*")) == [
        "closed_book", "closed_book-seed=1", "closed_book-seed=2",
    ]  # fmt: skip
    assert (tmp_path / "runs/closed_book/traces.jsonl").read_bytes() == first, "it is the first of the three"
    means = [run["em"] for run in record["runs"].values()]
    mean = record["means"]["closed_book"]["em"]
    assert mean["mean"] == pytest.approx(sum(means) / 3, abs=1e-3) and mean["runs"] == 3
    assert f"closed_book: its 3 runs answer {N} of {N} questions differently." in printed
    low, high = mean["interval"]
    one = bootstrap_mean([1.0] * 20 + [0.0] * 10)
    assert low < mean["mean"] < high and one and one.low is not None
    assert "verdict" not in record, "one method, whose runs are not tested against each other"
    again, _ = record_of(capsys, "run", *options, "--repeats", "3")
    assert again == printed, "nothing is asked again"


def test_a_sweep_repeats_its_cells(options, tmp_path, capsys):
    cells = "{plain: {}, short: {closed_book.max_answer_tokens: 4}}"
    printed, record = record_of(capsys, "sweep", *options, "--cells", cells, "--repeats", "2")
    folders = {each.name for each in (tmp_path / "runs").iterdir() if each.is_dir()}
    assert folders == {"plain", "plain-seed=1", "short", "short-seed=1"}
    assert "Mean ± standard deviation" in printed and f"of {N} questions differently" in printed
    assert set(record["pareto"]) <= {"plain", "short"}, "a setting is a point, whatever its luckiest seed"


def test_a_grid_over_the_seed_with_repeats_counts_each_run_once(options, tmp_path, capsys):
    grid = ["--grid", "{seed: [0, 1]}", "--repeats", "2"]
    printed, record = record_of(capsys, "sweep", *options, *grid)
    assert sorted(run["options"]["seed"] for run in record["runs"].values()) == [0, 1, 2], "1 is of both"
    assert len(list((tmp_path / "runs").glob("closed*"))) == 3
    assert "closed_book seed=0: its 3 runs answer" in printed and record["pareto"] == ["closed_book seed=0"]
