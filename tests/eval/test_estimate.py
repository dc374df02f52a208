"""What a run has still to do is judged by what it did: tokens, searches, seconds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.runs.folder import read_lines
from corag.core.types import TokenUsage
from eval.experiment.estimate import estimate, questions_per_second
from eval.sweeps.plan import _plan_run, draw_evenly
from tests.eval.runs import QUESTIONS, make_run, row, saved
from tests.eval.test_sweep import SETTINGS as SWEEP
from tests.eval.test_sweep import TOWNS, Backends, backends

__all__ = ["backends"]


def test_the_rest_is_judged_by_the_mean_of_what_is_answered(tmp_path: Path) -> None:
    usage = [TokenUsage(1, 10 * n, 2, 10 * n, 5) for n in range(1, 13)]
    rows = [
        replace(row(question, "x", ["p"]), usage={"reader": each, "measure": each}, begun=100.0, seconds=2.0)
        for question, each in zip(QUESTIONS, usage, strict=False)
    ]
    failed = row(QUESTIONS[20], None)
    folder = make_run(tmp_path / "run", [*rows, failed])
    rest = estimate(folder, 120)
    assert rest is not None and rest.questions == 120
    assert rest.tokens == 20 * sum(each.total for each in usage)
    assert rest.computed == 20 * sum(each.computed for each in usage)
    assert 0.2 < rest.error < 0.6
    assert rest.seconds == pytest.approx(20.0), "twelve in two seconds"
    assert estimate(make_run(tmp_path / "few", rows[:9]), 5) is None


def test_the_pace_is_that_of_an_engine_at_work_and_of_each_start_by_itself() -> None:
    """Ten questions in flight, the last alone for a minute: a longer run would have filled its place."""
    ten = [replace(saved(each, "x"), begun=100.0, seconds=10.0, opened=1.0) for each in QUESTIONS[:9]]
    last = replace(saved(QUESTIONS[9], "x"), begun=100.0, seconds=70.0, opened=1.0)
    pace = questions_per_second([*ten, last])
    assert pace == pytest.approx((9 + 10 / 70) / 10)
    later = [replace(each, begun=5000.0, opened=2.0) for each in (*ten, last)]
    assert questions_per_second([*ten, last, *later]) == pytest.approx(pace), "the hours between do not count"
    assert questions_per_second([]) == 0.0


def test_a_sorted_file_is_drawn_from_evenly() -> None:
    assert [int(each.id) for each in draw_evenly(QUESTIONS, 12)] == list(range(1, 24, 2))
    assert len(draw_evenly(QUESTIONS, 4)) == 10, "of fewer nothing can be judged"
    assert list(draw_evenly(QUESTIONS, 99)) == QUESTIONS


def test_a_plan_answers_a_pilot_in_the_folders_of_the_sweep(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("corag.cli.commands.sweep.BACK_ENDS", backends.openers)
    lines = [
        {"id": f"{n}", "question": f"Where is {TOWNS[n % 7]}, in {n}?", "answers": ["x"]} for n in range(40)
    ]
    Path("many.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Path("plan.yaml").write_text(json.dumps(SWEEP | {"grid": [], "cells": {"a": {"corag.max_hops": 2}}}))
    words = "--config plan.yaml --questions many.jsonl --out out".split()
    assert main(["sweep", *words, "--pilot", "10", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "30 of 40" in printed and "The same command without 'pilot' goes on" in printed
    (run,) = json.loads(printed.splitlines()[-1])["runs"]
    assert (run["name"], run["questions"], run["rest"]["questions"]) == ("a", 40, 30)
    assert sorted(map(int, read_lines(Path("out/a")))) == list(range(2, 40, 4))
    asked = backends.asked
    assert main(["sweep", *words]) == 0
    assert len(read_lines(Path("out/a"))) == 40
    per_question = asked / 10
    assert backends.asked == pytest.approx(40 * per_question, rel=0.2), "the pilot's are not asked again"


def test_what_a_folder_answered_beyond_the_plan_is_neither_left_nor_forgotten(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [row(each, "x", ["p"]) for each in QUESTIONS[:18]])
    planned = _plan_run("a", folder, QUESTIONS[14:24])
    assert planned.rest is not None and (planned.questions, planned.rest.questions) == (10, 6)
    done = _plan_run("a", folder, QUESTIONS[:4])
    assert done.rest is not None and done.rest.questions == 0


def test_a_plan_of_a_run_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run would refuse, its plan refuses too, before anything is opened."""
    words = ["--questions", str(tmp_path / "none.jsonl"), "--method", "closed_book"]
    assert main(["run", *words, "--pilot", "20"]) == 2
    assert "none.jsonl" in capsys.readouterr().err
