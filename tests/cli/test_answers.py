"""Answers to questions without gold answers: each once, as CSV and JSON Lines."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.types import Question
from eval.api import Results
from eval.datasets.answers import write_answers
from eval.tables.runs import write_run_answers
from tests.eval.runs import make_run, row
from tests.failing_search import Failing
from tests.generation.test_openai_server import HOSTED, StandIn
from tests.messages import raises_message

COUNT = int(os.environ.get("CORAG_QUESTIONS", "40"))  # by hand: 2,000
FIELDS = ["id", "question", "answer", "sources", "tokens", "stopped", "error"]
GOLD = Question("a", "Where was Ada born?", ("Orvale",))
BARE = Question("b", "Where was Ben born?")


class Answering(StandIn):
    """A hosted model that answers a question by its number, in its own time."""

    async def _answer(self, request: Request) -> Response:
        if request.method == "POST":
            await asyncio.sleep(0.02)
        return await super()._answer(request)

    def _complete(self, body: dict[str, Any], *, chat: bool) -> Response:
        asked = str(body.get("messages") or body.get("prompt"))
        numbers = re.findall(r"part (\d+)", asked)
        self.reply = f"part {numbers[-1] if numbers else 0}"
        return super()._complete(body, chat=chat)


@pytest.fixture
def options(tmp_path: Path) -> Iterator[list[str]]:
    """The options of a run on bare questions over a scripted model and a scripted index."""
    file = tmp_path / "asked.txt"
    file.write_text("".join(f"Who wrote part {n}?\n" for n in range(COUNT)))
    with Answering(HOSTED) as model, Failing() as index:
        given = [
            "--questions", file, "--method", "one_step", "--one_step.k", 1, "--batch_size", 4,
            "--model.backend", "openai", "--model.urls", model.url, "--retriever.url", index.url,
            "--out", tmp_path / "runs",
        ]  # fmt: skip
        yield [str(word) for word in given]


def records(file: Path) -> list[dict[str, Any]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def all_once(file: Path) -> list[dict[str, Any]]:
    rows = records(file)
    assert len(rows) == len({each["id"] for each in rows}) == COUNT
    assert [each["question"] for each in rows] == [f"Who wrote part {n}?" for n in range(COUNT)]
    assert [each["answer"] for each in rows] == [f"part {n}" for n in range(COUNT)]
    return rows


def test_a_run_writes_its_answers_and_scores_nothing(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep/answers.csv"
    assert main(["run", *options, "--answers_to", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert (
        f"{COUNT} questions have no gold answers" in printed.out and f"{out}: {COUNT} answers." in printed.out
    )
    assert "EM" not in printed.out.partition("no gold answers")[0], "nor is there a column for a score"
    figures = json.loads(printed.out.splitlines()[-1])["runs"]["one_step"]
    assert (figures["em"], figures["f1"], figures["unscored"]) == (None, None, COUNT)
    first = all_once(out)[0]
    assert (
        list(first) == FIELDS and first["sources"] == "T" and int(first["tokens"]) > 0 and not first["error"]
    )
    lines = tmp_path / "answers.jsonl"
    run = next((tmp_path / "runs").glob("one_step*"))
    assert main(["table", str(run), "--answers_to", str(lines)]) == 0
    (line, *_) = map(json.loads, lines.read_text().splitlines())
    assert list(line) == FIELDS and line["sources"] == [{"id": "1", "title": "T"}]
    for command in (
        ["table"],
        ["table", "--ledger", "true"],
        ["table", "--report", str(tmp_path / "report.html")],
    ):
        assert main([command[0], str(run), *command[1:]]) == 0


def test_some_gold_answers_are_scored_and_failed_questions_are_there(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [row(BARE, None), row(GOLD, "Orvale", ["p1"])])
    results = Results({"one_step": run})
    (summary,) = results.table().figures.summaries
    em = summary.measures["em"]
    assert em is not None and (em.mean, em.n, summary.unscored_count) == (1.0, 1, 1)
    assert write_run_answers(results.runs, tmp_path / "answers.csv") == 2
    failed, answered = records(tmp_path / "answers.csv")
    assert failed["error"] and not failed["answer"] and not answered["error"]
    assert answered["answer"] == "Orvale" and answered["sources"] == "About p1"


def test_an_error_is_one_line_of_an_answers_file(tmp_path: Path) -> None:
    """A run keeps the traceback of an own model, for which a cell is no place."""
    failed = replace(row(BARE, None), error="ValueError: boom\nTraceback ...\n  File x")
    runs = {"run": make_run(tmp_path / "run", [failed])}
    for file in (tmp_path / "answers.csv", tmp_path / "answers.jsonl"):
        write_run_answers(runs, file)
    (line,) = csv.DictReader((tmp_path / "answers.csv").open())
    assert (
        line["error"] == json.loads((tmp_path / "answers.jsonl").read_text())["error"] == "ValueError: boom"
    )


def test_answers_of_several_runs_say_whose_they_are(tmp_path: Path) -> None:
    runs = {name: make_run(tmp_path / name, [row(BARE, name)]) for name in ("ircot", "corag")}
    write_run_answers(runs, tmp_path / "answers.csv")
    assert [(each["method"], each["answer"]) for each in records(tmp_path / "answers.csv")] == [
        ("ircot", "ircot"),
        ("corag", "corag"),
    ]


def test_another_file_is_refused_before_anything_is_answered(tmp_path: Path) -> None:
    with raises_message(ConfigError):
        write_answers({}, tmp_path / "answers.xlsx")
    assert main(["run", "--questions", "q.jsonl", "--answers_to", "answers"]) == 2
