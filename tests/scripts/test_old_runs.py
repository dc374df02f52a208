"""Run folders of the first edition (``tests/old_runs``): what reads finished runs reads them still."""

import json
from pathlib import Path

import pytest

from scripts.cli import main

OLD = Path(__file__).parents[1] / "old_runs"
RUNS = [str(OLD / "one_step"), str(OLD / "corag")]


def last_line(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_table_of_old_runs_counts_their_answers_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", *RUNS, "--baseline", "one_step", "--json"]) == 0
    record = last_line(capsys)
    assert {name: (run["n"], run["failed"]) for name, run in record["runs"].items()} == {
        "one_step": (3, 0), "corag": (3, 1),
    }  # fmt: skip
    assert record["runs"]["corag"]["tokens_per_question"] > record["runs"]["one_step"]["tokens_per_question"]
    assert {test["measure"] for test in record["against"]} >= {"em", "f1", "recall"}


def test_old_runs_are_compared_question_by_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *RUNS, "--json"]) == 0
    record = last_line(capsys)
    assert record["em"]["n"] == 3
    assert record["conditions"]["shared"]


def test_the_ledger_of_an_old_run_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", RUNS[1], "--json"]) == 0
    (ledger,) = last_line(capsys)["runs"].values()
    assert {"sub_query", "sub_answer", "score", "final"} <= set(ledger["roles"])


def test_a_report_of_old_runs_has_every_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *RUNS, "--out", str(tmp_path / "report.html"), "--json"]) == 0
    record = last_line(capsys)
    assert (record["runs"], record["questions"]) == (2, 3)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
