"""corag show: what a run and training rows hold of one question, as text."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

from corag.chains.method import corag
from corag.cli.main import main
from corag.core.runs.folder import read_rows
from corag.core.tools import Tools
from eval.api.ask import answer_one
from tests.eval.report_runs import METHODS, REFUSAL, World, write
from training.rows import REPORT


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), 6)


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main(["show", *map(str, words)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["greedy", "best_of_4", "tree"])
def test_a_stored_answer_is_drawn_as_a_new_one(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder, question = write(tmp_path, name, world), world.questions[0]
    tools = Tools(question, world.model(0.5), world)
    new = asyncio.run(
        answer_one(
            "corag",
            question,
            lambda question, tools: corag(question, tools, METHODS[name]),
            tools,
            world,
            REFUSAL,
        )
    )

    def without_cost(text: str) -> list[str]:
        return [line.rstrip() for line in text.splitlines() if not line.startswith("cost ")]

    assert new.answer is not None and "← chosen" in str(new)
    assert without_cost(shown(capsys, folder, question.id)) == without_cost(str(new))
    listed = shown(capsys, folder).splitlines()
    assert [line.split()[0] for line in listed] == list(read_rows(folder))
    assert all(re.search(r"EM \d+  F1 \d+|failed: ", line) for line in listed)
    assert main(["show", str(folder), "nothing"]) == 2
    assert "has no question 'nothing'" in capsys.readouterr().err


def test_training_rows_are_shown_as_the_model_reads_them(
    rows: str, tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from datasets import load_from_disk

    mine = [row for table in load_from_disk(rows).values() for row in table if row["question_id"] == "q3"]
    printed = shown(capsys, rows, "q3", "--model", tiny_model)
    learned = re.findall(r"\[\[(.*?)\]\]", printed, re.DOTALL)
    assert len(learned) == len(mine) >= 3
    for row, text in zip(mine, learned, strict=True):
        assert row["completion"] in text and row["prompt"].splitlines()[-1].strip() in printed
    assert len(shown(capsys, rows).splitlines()) == sum(map(len, load_from_disk(rows).values()))
    other = shutil.copytree(rows, tmp_path / "other")
    report = json.loads((other / REPORT).read_text())
    report["settings"]["tokenizer"] = "of another model"
    (other / REPORT).write_text(json.dumps(report))
    assert main(["show", str(other), "q3"]) == 2
    assert "another tokenizer" in capsys.readouterr().err
